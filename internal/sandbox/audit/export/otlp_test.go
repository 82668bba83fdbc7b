package export

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestRecordsAreLogRecordsOfOpenTelemetry(t *testing.T) {
	r := receive(t)
	records := []audit.Record{
		record(1, "sb_1", 0, audit.NetworkAllowed{Host: "example.com", Port: 443, Rule: "example.com:443", SentBytes: 7}),
		record(2, "sb_1", 1, audit.PermissionDenied{Path: "/.env", Operation: "open", RuleIndex: -1, Count: 2}),
		record(3, "sb_1", 2, audit.CommandExecuted{Argv: []audit.Text{"true"}, TimedOut: true}),
		{Event: audit.Malformed{Bytes: 3, Reason: "not a record"}, Raw: []byte("\xff<\n")},
	}
	dropped, err := NewOTLP(r.endpoint(t, OTLPPath), "1.2.3").Send(patience(t), records)
	if err != nil || dropped != 0 {
		t.Fatalf("dropped %d: %v", dropped, err)
	}
	if r.path != "/v1/logs" || r.header.Get("Content-Type") != "application/json" || r.header.Get("Authorization") != "Bearer s3cret" {
		t.Errorf("posted to %s with %v", r.path, r.header)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, r.all()[0], "", "  "); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "otlp.json")
	if *update {
		if err := os.WriteFile(golden, append(indented.Bytes(), '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), indented.String()+"\n"); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestLongRecordsAreCut(t *testing.T) {
	long := audit.Text(strings.Repeat("ä", maxBody))
	log := otlpOf(record(1, "sb_1", 0, audit.SandboxStopped{Reason: long}))
	if len(*log.Body.String) > maxBody {
		t.Errorf("a body of %d bytes", len(*log.Body.String))
	}
	cut := false
	for _, a := range log.Attributes {
		if a.Value.String != nil && len(*a.Value.String) > maxAttribute {
			t.Errorf("attribute %s has %d bytes", a.Key, len(*a.Value.String))
		}
		cut = cut || a.Key == "agentfense.audit.cut"
	}
	if !cut {
		t.Error("it does not say that it is cut")
	}
}

func TestWhatACollectorAnswers(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		answer  string
		dropped int
		kind    errdefs.Kind
	}{
		{"it takes all", http.StatusOK, `{}`, 0, 0},
		{"it takes all and says nothing", http.StatusNoContent, ``, 0, 0},
		{"it refuses one", http.StatusOK, `{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"x"}}`, 1, errdefs.Precondition},
		{"it refuses more than there were", http.StatusOK, `{"partialSuccess":{"rejectedLogRecords":99}}`, 2, errdefs.Precondition},
		{"it is busy", http.StatusTooManyRequests, ``, 2, errdefs.Unavailable},
		{"it is down", http.StatusServiceUnavailable, ``, 2, errdefs.Unavailable},
		{"it does not know us", http.StatusUnauthorized, `secret words`, 2, errdefs.Precondition},
		{"it sends us elsewhere", http.StatusFound, ``, 2, errdefs.Precondition},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := receive(t, c.status)
			r.answer = c.answer
			records := []audit.Record{record(1, "sb_1", 0, audit.SandboxStopped{}), record(2, "sb_1", 0, audit.SandboxDestroyed{})}
			dropped, err := NewOTLP(r.endpoint(t, OTLPPath), "1").Send(patience(t), records)
			if dropped != c.dropped || (err == nil) != (c.kind == 0) || err != nil && !errdefs.Is(err, c.kind) {
				t.Errorf("dropped %d, want %d: %v", dropped, c.dropped, err)
			}
			if len(r.all()) != 1 {
				t.Errorf("%d requests", len(r.all()))
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error has what the receiver says: %v", err)
			}
		})
	}
}

func TestEndpointsThatAreRefused(t *testing.T) {
	for _, url := range []string{
		"", "collector:4318", "ftp://host/", "http://", "http://example.com/s3cret", "http://10.0.0.1:4318",
		"https://user:s3cret@example.com/", "https://exa mple.com/s3cret", "http://127.0.0.1.example.com/",
	} {
		_, err := NewEndpoint(EndpointOptions{URL: url}, "/")
		if !errdefs.Is(err, errdefs.Invalid) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, url := range []string{"https://example.com", "http://localhost:4318", "http://[::1]:4318/v1/logs", "http://127.0.0.2"} {
		if _, err := NewEndpoint(EndpointOptions{URL: url}, "/"); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := NewEndpoint(EndpointOptions{URL: "https://example.com", CA: []byte("x")}, "/"); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("authorities that are none: %v", err)
	}
}

// refusing is an address at which nothing listens, and nothing else can begin to.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
}

func TestErrorsHideTheURL(t *testing.T) {
	to, err := NewEndpoint(EndpointOptions{URL: "http://" + refusing(t) + "/hooks/s3cret"}, "/")
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = to.post(ctx, []byte("{}")); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("canceled: %v", err)
	}
	if _, err = to.post(patience(t), []byte("{}")); !errdefs.Is(err, errdefs.Unavailable) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("down: %v", err)
	}
}

func TestHeaders(t *testing.T) {
	h, err := ParseHeader([]byte("# of the collector\nAuthorization: Bearer a:b\n\nX-Scope: 1\n"))
	if diff := cmp.Diff(http.Header{"Authorization": {"Bearer a:b"}, "X-Scope": {"1"}}, h); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	h, err = ParseHeaderVariable("api-key=s3cret%20x, x-b=2")
	if diff := cmp.Diff(http.Header{"Api-Key": {"s3cret x"}, "X-B": {"2"}}, h); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"s3cret", "a b: s3cret", ": s3cret", "a: s3cret\x01"} {
		if _, err := ParseHeader([]byte(text)); !errdefs.Is(err, errdefs.Invalid) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"s3cret", "a=%zz", "a b=s3cret", "a=s3cret%0a"} {
		if _, err := ParseHeaderVariable(text); !errdefs.Is(err, errdefs.Invalid) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
