package network_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// endless serves answers, and heads of answers, that do not end.
type endless struct {
	mu   sync.Mutex
	open int // requests that are answered
}

func (e *endless) site(_ *testing.T, mux *http.ServeMux) {
	mux.HandleFunc("/without-end", func(w http.ResponseWriter, _ *http.Request) {
		e.count(1)
		defer e.count(-1)
		part := bytes.Repeat([]byte("x"), 64<<10)
		for {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/head-without-end", func(w http.ResponseWriter, _ *http.Request) {
		e.count(1)
		defer e.count(-1)
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return // the client notices
		}
		defer c.Close()
		_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for i := 0; err == nil; i++ {
			_, err = fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("x", 1000))
		}
	})
}

func (e *endless) count(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open += n
}

func (e *endless) isOver() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open == 0
}

// Answers that do not end take bounded memory, whether a program reads them or not and however they
// pass: unopened, plain, opened, with a secret. They end with the program. One that does not even
// begin is given up.
func TestAnswersThatDoNotEnd(t *testing.T) {
	var server endless
	authority := internet(t, server.site)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		withSecret(t, authority)
		s := harness.New(t, binary, nil, who...)
		all := append(flags(authority, "example.com", "example.com:80", "other.example.net,intercept", "deep.www.example.com:80,intercept"), "--secret", "API_KEY@www.example.com")
		if r := s.Agentfense(append(append([]string{"run", "--name", s.Name, "--detach"}, all...), "--", "sleep", "1000")...); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		const much = 64 << 20
		script := fmt.Sprintf(`
get() { case $1 in *other*) c=/run/agentfense/ca.pem;; *) c=/opt/authority.pem;; esac; curl -sSN --cacert $c $1/without-end 2>/dev/null; }
urls='http://example.com https://example.com https://other.example.net http://api-key.agentfense.internal'
for u in $urls; do get $u | (head -c 1 >/dev/null; echo waits; exec sleep 1000) 2>/dev/null & done | head -n 4
for u in $urls; do get $u | head -c %d | wc -c; done
curl -sS -o /dev/null -w '%%{http_code}\n' http://deep.www.example.com/head-without-end`, much)
		want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", script), strings.Repeat("waits\n", 4)+strings.Repeat(fmt.Sprintln(much), 4)+"502\n")
		const most = 64 << 10 // in kB
		if got := peakOf(t, egressOf(t, s)); got > most {
			t.Errorf("the egress process took %d kB", got)
		}
		if r := s.Agentfense("stop", s.Name); r.Code != 0 {
			t.Error(r.Stderr)
		}
		testenv.Eventually(t, "no answer goes on", server.isOver)
	})
}
