package network_test

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// bulk takes and gives any number of bytes.
func bulk(_ *testing.T, mux *http.ServeMux) {
	mux.HandleFunc("/take", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // it may be cut
		_, _ = io.WriteString(w, "taken\n")
	})
	mux.HandleFunc("/give", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) // it may be cut
	})
}

// What is beyond the limits of the network does not leave the sandbox, also after the egress
// process was killed.
func TestLimitsOfTheNetwork(t *testing.T) {
	authority := internet(t, bulk)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		args := append([]string{"run", "--name", s.Name, "--detach"}, flags(authority, "example.com", "example.com:80")...)
		if r := s.Agentfense(append(args, "--net-limit", "out=600K,connections=2", "--net-limit", "in=1G", "--", "sleep", "1000")...); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		contains(t, "inspect", s.Agentfense("inspect", s.Name).Stdout, "connections=2,out=600K,in=1G")
		send := func(size string) string {
			return s.Agentfense("exec", s.Name, "--", "sh", "-c", "head -c "+size+" /dev/zero | curl -sS -X POST --data-binary @- https://example.com/take 2>/dev/null || echo refused").Stdout
		}
		if got := send("200K"); got != "taken\n" {
			t.Fatalf("within the limit: %q", got)
		}
		first := egressOf(t, s)
		if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "another process serves", func() bool { return send("0") == "taken\n" })
		held := s.Agentfense("exec", s.Name, "--", "sh", "-c", `
for i in 1 2; do curl -sSN --max-time 60 http://example.com/hold > /tmp/$i & pids="$pids $!"; done
until test -s /tmp/1 && test -s /tmp/2; do sleep 0.1; done
curl -s http://example.com/ || echo refused
kill $pids`)
		want(t, held, "refused\n")
		awaitLog(t, s, "the limit connections=2 of the network is reached; raise it with --net-limit")
		r := s.Agentfense("exec", s.Name, "--", "sh", "-c", `
curl -sSN --max-time 60 http://example.com/hold > /tmp/held & until test -s /tmp/held; do sleep 0.1; done
head -c 500K /dev/zero | curl -s -X POST --data-binary @- https://example.com/take || echo refused
wait; curl -s http://example.com/ || echo refused`)
		want(t, r, "refused\nrefused\n")
		awaitLog(t, s, "the limit out=600K of the network is reached")
		awaitLog(t, s, "network.out: limit 614400 reached")
	})
}

// A secret is used as often as its limit says, also when the egress process is killed between.
func TestLimitsOfASecret(t *testing.T) {
	authority := internet(t)
	withSecret(t, authority)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		args := append([]string{"run", "--name", s.Name, "--detach", "--secret", "API_KEY@example.com", "--secret-limit", "API_KEY=requests=3"}, flags(authority)...)
		if r := s.Agentfense(append(args, "--", "sleep", "1000")...); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		ask := func() harness.Result {
			return s.Agentfense("exec", s.Name, "--", "sh", "-c", `curl -sS -w '%{http_code}\n' http://api-key.agentfense.internal/reflect/ | grep -aE '^right|^[0-9]+$|limit'`)
		}
		for range 2 {
			want(t, ask(), "right=true\n200\n")
		}
		first := egressOf(t, s)
		if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "another process has the value", func() bool { return ask().Stdout == "right=true\n200\n" })
		r := ask()
		want(t, r, "agentfense: the limit requests=3 of secret API_KEY is reached; raise it with --secret-limit\n429\n")
		awaitLog(t, s, "the limit requests=3 of secret API_KEY is reached")
		awaitLog(t, s, "secret.API_KEY.requests: limit 3 reached")
	})
}

// awaitLog waits until the audit log has a text: refusals are counted for a moment.
func awaitLog(t *testing.T, s *harness.Sandbox, text string) {
	t.Helper()
	testenv.Eventually(t, "the audit log says "+text, func() bool { return strings.Contains(s.Agentfense("audit", s.Name).Stdout, text) })
}
