package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/gateway"
)

// described are the routes of the description that is served: "GET /v1/…".
func described(t *testing.T) []string {
	t.Helper()
	got := do(t, "GET", serve(t, &fake{}, gateway.Options{})+"/openapi.json", "")
	if got.status != 200 || got.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v", got.status, got.header)
	}
	var document struct {
		Swagger     string
		Paths       map[string]map[string]struct{ OperationID string }
		Definitions map[string]any
	}
	if err := json.Unmarshal([]byte(got.body), &document); err != nil {
		t.Fatal(err)
	}
	if document.Swagger != "2.0" {
		t.Errorf("swagger %q", document.Swagger)
	}
	for _, ref := range regexp.MustCompile(`"#/definitions/(\w+)"`).FindAllStringSubmatch(got.body, -1) {
		if document.Definitions[ref[1]] == nil {
			t.Errorf("%s is used and not defined", ref[1])
		}
	}
	var routes, operations []string
	for path, methods := range document.Paths {
		for method, operation := range methods {
			routes = append(routes, strings.ToUpper(method)+" "+path)
			operations = append(operations, operation.OperationID)
		}
	}
	slices.Sort(routes)
	slices.Sort(operations)
	if twice := len(operations) - len(slices.Compact(operations)); twice != 0 {
		t.Errorf("%d operations have the id of another", twice)
	}
	return routes
}

// Each route that is described is served.
func TestWhatIsDescribedIsServed(t *testing.T) {
	f := &fake{
		answer: &sandboxv1.Empty{}, output: sends(nil, exit(0)), audit: sends[sandboxv1.AuditEvent](nil), watch: sends[sandboxv1.WatchViewResponse](nil),
		download: func(grpc.ServerStreamingServer[piece]) error { return nil },
	}
	url := serve(t, f, gateway.Options{})
	for _, route := range described(t) {
		f.forget()
		method, path, _ := strings.Cut(route, " ")
		got := do(t, method, url+regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "x"), "")
		if got.status != http.StatusOK || f.count() != 1 {
			t.Errorf("%s: %d %s, %d calls", route, got.status, got.body, f.count())
		}
	}
}

// docs/rest.md has a section of each route, with an example.
func TestEachRouteIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/rest.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile("(?m)^#+ `([A-Z]+ /[^`]*)`$")
	var documented []string
	starts := heading.FindAllStringSubmatchIndex(string(text), -1)
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		route := string(text[at[2]:at[3]])
		documented = append(documented, route)
		method, path, _ := strings.Cut(route, " ")
		// The example's URL has anything for a parameter, and maybe a query.
		pattern := regexp.QuoteMeta(path)
		pattern = regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(pattern, `[^ '"?]+`)
		example := regexp.MustCompile(fmt.Sprintf(`(?s)\bcurl [^\n]*%s['" ?\n]`, pattern))
		if !example.Match(text[at[1]:end]) {
			t.Errorf("%s has no example with curl (%s %s)", route, method, example)
		}
	}
	slices.Sort(documented)
	want := append(described(t), "GET /healthz", "GET /metrics", "GET /openapi.json", "GET /readyz")
	slices.Sort(want)
	for _, route := range want {
		if !slices.Contains(documented, route) {
			t.Errorf("docs/rest.md has no heading `%s`", route)
		}
	}
	for _, route := range documented {
		if !slices.Contains(want, route) {
			t.Errorf("docs/rest.md describes %s, which there is not", route)
		}
	}
}
