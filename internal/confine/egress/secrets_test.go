package egress

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
)

const (
	secretValue       = "the-value-that-nobody-inside-knows"
	secretPlaceholder = "PlaceholderPlaceholderPlaceholde"
	insideName        = "api-key.agentfense.internal"
)

// startWithSecret starts a process with a secret for example.com, where handler answers, and
// returns it with the certificate of the host.
func startWithSecret(t *testing.T, handler http.HandlerFunc, rules ...string) (o *outside, certificate []byte) {
	t.Helper()
	return startWithLimitedSecret(t, "", handler, rules...)
}

// startWithLimitedSecret is startWithSecret of one with limits.
func startWithLimitedSecret(t *testing.T, limits string, handler http.HandlerFunc, rules ...string) (o *outside, certificate []byte) {
	t.Helper()
	host := httptest.NewTLSServer(handler)
	t.Cleanup(host.Close)
	s := secret.Secret{Name: "API_KEY", Hosts: []secret.Target{{Host: "example.com", Port: 443}}, Placeholder: secretPlaceholder}
	rules = append([]string{insideName + ":80"}, rules...)
	o = startProcess(t, host.Listener, func(p *process) {
		w := wireSecret{Name: s.Name, Hosts: s.Hosts, Limits: s.Limits, Quota: limits, Placeholder: s.Placeholder}
		if err := p.secrets.set([]wireSecret{w}, p.quotas.Take); err != nil {
			t.Error(err)
		}
	}, rules...)
	return o, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: host.Certificate().Raw})
}

// handOver gives the process values and certificates.
func (o *outside) handOver(values map[string]string, certificates []byte) {
	o.t.Helper()
	text, err := json.Marshal(values)
	if err != nil {
		o.t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		o.t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.Write(text); err != nil {
		o.t.Fatal(err)
	}
	w.Close()
	path := filepath.Join(o.t.TempDir(), "roots.pem")
	if err := os.WriteFile(path, certificates, 0o600); err != nil {
		o.t.Fatal(err)
	}
	roots, err := os.Open(path)
	if err != nil {
		o.t.Fatal(err)
	}
	defer roots.Close()
	took := func(r report) bool { return r.Took }
	o.mu.Lock()
	o.reports = slices.DeleteFunc(o.reports, took)
	o.mu.Unlock()
	if err := o.wire.send(order{Handover: true}, r, roots); err != nil {
		o.t.Fatal(err)
	}
	o.await(took)
}

// get asks for / of a host, by a connection of its own.
func (o *outside) get(h allowlist.Host, field string) (status int, body string) {
	o.t.Helper()
	c := o.dial(h)
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n%s\r\n", h, field); err != nil {
		o.t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// reflect answers with the credential that it got, and with what stands for it.
func reflect(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %t", r.Header.Get("Authorization"), r.Header.Get("Authorization") == "Bearer "+secretValue)
}

func TestASecretIsUsedAndNotTold(t *testing.T) {
	o, certificate := startWithSecret(t, reflect)
	if status, body := o.get(insideName, ""); status != http.StatusServiceUnavailable {
		t.Errorf("without a value: got %d %s", status, body)
	}
	o.awaitDenied("no value of secret API_KEY")
	o.handOver(map[string]string{"API_KEY": secretValue}, certificate)
	status, body := o.get(insideName, "Authorization: Bearer "+secretPlaceholder+"\r\n")
	if status != http.StatusOK || body != "Bearer "+strings.Repeat("*", len(secretValue))+" true" {
		t.Errorf("got %d %s", status, body)
	}
	opened := o.await(func(r report) bool { return r.Opened != nil }).Opened
	closed := o.await(func(r report) bool { return r.Closed != nil }).Closed[0]
	if opened.Host != "example.com" || opened.Port != 443 || closed.ID != opened.ID || closed.Requests != 1 || closed.Sent == 0 || closed.Received == 0 {
		t.Errorf("reported %+v, %+v", opened, closed)
	}
}

// A caller may know one value, and another caller another one.
func TestValuesComeOneByOne(t *testing.T) {
	var s secretTable
	if err := s.set([]wireSecret{{Name: "A"}, {Name: "B"}}, nil); err != nil {
		t.Fatal(err)
	}
	give := func(values string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "values")
		if err := os.WriteFile(path, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		var files []*os.File
		for _, name := range []string{path, os.DevNull} {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		if err := s.take(files); err != nil {
			t.Fatal(err)
		}
	}
	give(`{"A":"the value of A"}`)
	if s.isComplete() {
		t.Error("complete without B")
	}
	give(`{"B":"the value of B"}`)
	if !s.isComplete() {
		t.Error("not complete with both")
	}
	if text := s.masker.Text("the value of A"); strings.Contains(text, "value") {
		t.Errorf("not masked: %s", text)
	}
}

func TestAHostThatIsNotVerifiedGetsNoSecret(t *testing.T) {
	o, _ := startWithSecret(t, func(http.ResponseWriter, *http.Request) { t.Error("it was asked") })
	for name, certificates := range map[string][]byte{"no certificates": nil, "another authority": otherAuthority(t)} {
		o.handOver(map[string]string{"API_KEY": secretValue}, certificates)
		if status, body := o.get(insideName, ""); status != http.StatusBadGateway {
			t.Errorf("%s: got %d %s", name, status, body)
		}
		o.awaitDenied("certificate")
	}
}

// otherAuthority returns a certificate that signed for none of the servers here.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	var config *tls.Config
	overTLS(t, func(c *tls.Config) { config = c })
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: config.Certificates[0].Certificate[0]})
}

func TestAHostOfASecretIsNotReachedDirectly(t *testing.T) {
	o, _ := startWithSecret(t, reflect, "example.com", "other.example.com:80")
	if c, err := net.Dial("tcp", o.hosts["example.com"].String()); err == nil { // it may be reset at once
		_, _ = io.WriteString(c, "x")
		if b, err := io.ReadAll(c); len(b) > 0 {
			t.Errorf("got %q, %v", b, err)
		}
		c.Close()
	}
	o.awaitDenied("secret API_KEY is for this host")
	if status, _ := o.get("other.example.com", "X: "+secretPlaceholder+"\r\n"); status != http.StatusForbidden {
		t.Errorf("a placeholder for another host: got %d", status)
	}
	o.awaitDenied("the placeholder of secret API_KEY")
}

// What two parsers read in different ways is refused at the address of a secret, as everywhere.
func TestNothingIsSmuggledToTheHostOfASecret(t *testing.T) {
	o, certificate := startWithSecret(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the host was asked for %s", r.URL) })
	o.handOver(map[string]string{"API_KEY": secretValue}, certificate)
	const hidden = "GET /smuggled HTTP/1.1\r\nHost: " + insideName + "\r\n\r\n"
	for name, tt := range map[string]struct{ head, reason string }{
		"CL.TE":                    {"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX" + hidden, "more than one length"},
		"two lengths":              {"Content-Length: 0\r\nContent-Length: 60\r\n\r\n" + hidden, "more than one length"},
		"a folded field":           {"X: a\r\n b\r\n\r\n" + hidden, "malformed header field"},
		"a space before the colon": {"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden, "malformed header field"},
		"two Hosts":                {"Host: evil.example\r\n\r\n", "not exactly one Host field"},
	} {
		c := o.dial(insideName)
		if _, err := io.WriteString(c, "POST /first HTTP/1.1\r\nHost: "+insideName+"\r\n"+tt.head); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(c); !strings.HasPrefix(string(answer), "HTTP/1.1 403 ") || !strings.Contains(string(answer), tt.reason) {
			t.Errorf("%s: got %q, %v; want %s", name, answer, err, tt.reason)
		}
		c.Close()
		o.awaitDenied(tt.reason)
	}
}

func TestTheSupervisorKnowsWhereSecretsGo(t *testing.T) {
	e, c, allowed, _ := newSupervisor(t)
	e.options.Secrets = []secret.Secret{{Name: "API_KEY", Hosts: []secret.Target{{Host: "api.example.com", Port: 443}}}}
	if err := e.opened(c, opened{1, Allowed{Host: "api.example.com", Port: 443, Rule: "forged"}}); err != nil {
		t.Error(err)
	}
	if got := c.open[1].Rule; got != "secret API_KEY" {
		t.Errorf("the rule is %q", got)
	}
	for _, a := range []Allowed{{Host: "api.example.com", Port: 80}, {Host: "evil.example", Port: 443}} {
		if err := e.opened(c, opened{2, a}); err == nil {
			t.Errorf("it believes in %+v", a)
		}
	}
	if _, err := e.assign("api.example.com"); err == nil {
		t.Error("the host of a secret got an address")
	}
	if len(*allowed) > 0 {
		t.Errorf("told of %v", *allowed)
	}
}

func TestSecretsAreHandedToAProcessThatRuns(t *testing.T) {
	e, _, _, _ := newSupervisor(t)
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := e.GiveSecrets(f, f); err == nil || e.HasSecrets() {
		t.Errorf("got %v without a process", err)
	}
}
