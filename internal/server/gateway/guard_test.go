package gateway_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/server/gateway"
)

func TestAPageOfAnotherOriginIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, method, path, key, value string
		status                         int
	}{
		{"by its origin", "POST", "/v1/sandboxes", "Origin", "https://evil.example", 403},
		{"by a file's origin", "POST", "/v1/sandboxes/sb_1/exec:stream", "Origin", "null", 403},
		{"by what the browser says", "DELETE", "/v1/sandboxes/sb_1", "Sec-Fetch-Site", "cross-site", 403},
		{"an upload", "PUT", "/v1/codebases/cb_1/files/a", "Sec-Fetch-Site", "same-site", 403},
		{"not a page of ours", "POST", "/v1/sandboxes", "Sec-Fetch-Site", "same-origin", 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fake{answer: &sandboxv1.Sandbox{}}
			got := do(t, c.method, serve(t, f, gateway.Options{})+c.path, "{}", header(c.key, c.value))
			if got.status != c.status || c.status == 403 && (f.count() != 0 || !strings.Contains(got.body, `"code":7`)) {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
}

// CORS is off: nothing in an answer lets another page read it.
func TestNoHeaderOfCORS(t *testing.T) {
	url := serve(t, &fake{answer: &sandboxv1.Sandbox{}}, gateway.Options{})
	for _, method := range []string{"OPTIONS", "GET"} {
		got := do(t, method, url+"/v1/sandboxes/sb_1", "", header("Origin", "https://evil.example"), header("Access-Control-Request-Method", "DELETE"))
		for key := range got.header {
			if strings.HasPrefix(key, "Access-Control-") {
				t.Errorf("%s: %s: %s", method, key, got.header.Get(key))
			}
		}
	}
}

func TestLoopbackOnly(t *testing.T) {
	url := serve(t, &fake{answer: &sandboxv1.Sandbox{}}, gateway.Options{LoopbackOnly: true})
	for name, status := range map[string]int{
		"localhost": 200, "LOCALHOST:8080": 200, "127.0.0.1": 200, "127.0.0.1:8080": 200, "127.9.9.9:1": 200, "[::1]:8080": 200, "[::1]": 200,
		"evil.example": 403, "evil.example:8080": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "192.168.0.1:8080": 403, "localhost.": 403,
	} {
		for _, path := range []string{"/v1/sandboxes/sb_1", "/healthz"} {
			if got := do(t, "GET", url+path, "", host(name)); got.status != status {
				t.Errorf("%s at %s: %d, want %d", path, name, got.status, status)
			}
		}
	}
	anywhere := serve(t, &fake{answer: &sandboxv1.Sandbox{}}, gateway.Options{})
	if got := do(t, "GET", anywhere+"/v1/sandboxes/sb_1", "", host("server.example")); got.status != 200 {
		t.Errorf("without LoopbackOnly: %d", got.status)
	}
}

// A request says who asks, and names no other metadata.
func TestMetadataOfACall(t *testing.T) {
	f := &fake{answer: &sandboxv1.Sandbox{}}
	do(t, "GET", serve(t, f, gateway.Options{})+"/v1/sandboxes/sb_1", "",
		header("Authorization", "Bearer x"), header("Cookie", "a=b"), header("Grpc-Metadata-Authorization", "Bearer y"),
		header("Grpc-Metadata-"+gateway.ClientCertKey, "AAAA"), header(gateway.ClientCertKey, "AAAA"), header("X-Any", "z"))
	got := f.only(t).metadata
	for _, transport := range []string{":authority", "content-type", "user-agent", "x-forwarded-for", "x-forwarded-host"} {
		delete(got, transport)
	}
	if diff := cmp.Diff(metadata.MD{"authorization": {"Bearer x"}}, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

func TestTheClientsCertificateIsPassedOn(t *testing.T) {
	f := &fake{answer: &sandboxv1.Sandbox{}, output: sends(nil, exit(0))}
	handler := handlerOf(t, f, gateway.Options{})
	cert := &x509.Certificate{Raw: []byte{0x30, 0x00, 0xff}}
	for _, state := range []*tls.ConnectionState{
		{VerifiedChains: [][]*x509.Certificate{{cert, {Raw: []byte("authority")}}}},
		{PeerCertificates: []*x509.Certificate{cert}}, // shown, but not verified
	} {
		for _, target := range []string{"/v1/sandboxes/sb_1/start", "/v1/sandboxes/sb_1/exec:stream"} {
			before := f.count()
			r := httptest.NewRequestWithContext(t.Context(), "POST", target, http.NoBody)
			r.TLS = state
			handler.ServeHTTP(httptest.NewRecorder(), r)
			f.mu.Lock()
			got := f.calls[before].metadata[gateway.ClientCertKey]
			f.mu.Unlock()
			var want []string
			if len(state.VerifiedChains) > 0 {
				want = []string{string(cert.Raw)}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", target, got, want)
			}
		}
	}
}

func TestHealthAndReadiness(t *testing.T) {
	var log strings.Builder
	var reason error
	url := serve(t, &fake{}, gateway.Options{
		Ready: func(context.Context) error { return reason },
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
	})
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := do(t, "GET", url+path, ""); got.status != 200 || got.body != "ok\n" {
			t.Errorf("%s: %d %q", path, got.status, got.body)
		}
		if got := do(t, "POST", url+path, ""); got.status != 405 || got.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d %v", path, got.status, got.header)
		}
	}
	reason = errors.New("the database of /srv")
	got := do(t, "GET", url+"/readyz", "")
	if want := `{"code":14,"message":"not ready","details":[]}`; got.status != 503 || compact(t, got.body) != want {
		t.Errorf("%d %s", got.status, got.body)
	}
	if !strings.Contains(log.String(), "the database of /srv") {
		t.Errorf("the log has not the reason: %s", log.String())
	}
	if got := do(t, "GET", url+"/healthz", ""); got.status != 200 {
		t.Errorf("not ready is not unhealthy: %d", got.status)
	}
	if got := do(t, "GET", serve(t, &fake{}, gateway.Options{})+"/readyz", ""); got.status != 200 {
		t.Errorf("without Ready: %d", got.status)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	other := prometheus.NewCounter(prometheus.CounterOpts{Name: "other_total"})
	registry.MustRegister(other)
	f := &fake{answer: &sandboxv1.Sandbox{}, download: func(s grpc.ServerStreamingServer[piece]) error {
		if err := sendPieces(s, []string{strings.Repeat("x", 1<<16)}); err != nil {
			return err
		}
		return errors.New("broken")
	}}
	url := serve(t, f, gateway.Options{Registry: registry})
	do(t, "GET", url+"/v1/sandboxes/sb_secret", "")
	do(t, "GET", url+"/v1/sandboxes/sb_other", "")
	do(t, "DELETE", url+"/v1/nothing/sb_secret", "")
	do(t, "MADEUP", url+"/v1/sandboxes", "")
	do(t, "GET", url+"/v1/codebases/cb_1/files/secret", "") // ends in a panic
	got := do(t, "GET", url+"/metrics", "")
	for _, want := range []string{
		`agentfense_http_requests_total{code="200",method="GET"} 3`,
		`agentfense_http_requests_total{code="404",method="DELETE"} 1`,
		`agentfense_http_requests_total{code="405",method="other"} 1`,
		`agentfense_http_request_seconds_count{method="GET"} 3`,
		`agentfense_http_requests_in_flight 1`, // this one
		`other_total 0`,
	} {
		if !strings.Contains(got.body, want+"\n") {
			t.Errorf("no line %q in\n%s", want, got.body)
		}
	}
	if leak := regexp.MustCompile(`secret|v1|MADEUP`).FindString(got.body); leak != "" {
		t.Errorf("the metrics tell %q", leak)
	}
	if _, err := gateway.New(gateway.Options{Conn: (*grpc.ClientConn)(nil), Registry: registry}); err == nil {
		t.Error("two gateways count into one registry")
	}
}

func TestMetricsOfTheProcess(t *testing.T) {
	got := do(t, "GET", serve(t, &fake{}, gateway.Options{})+"/metrics", "")
	for _, want := range []string{"go_goroutines ", "process_resident_memory_bytes ", "agentfense_http_requests_in_flight 1"} {
		if !strings.Contains(got.body, "\n"+want) {
			t.Errorf("no line %q in\n%s", want, got.body)
		}
	}
}

func TestNewNeedsAConnection(t *testing.T) {
	if _, err := gateway.New(gateway.Options{}); err == nil {
		t.Error("there is a gateway to nothing")
	}
}
