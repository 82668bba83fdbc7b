package chaos_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/pollfd"
	"github.com/agentfense/agentfense/test/harness"
)

// internet has a server for each name, which notes the requests that no sandbox may send.
type internet struct {
	roots       string // file with the certificate of the authority that has signed for the names
	certificate string // its content

	mu      sync.Mutex
	escaped []string
}

// outside is the internet of all worlds.
var outside internet

// begin serves example.com, which sandboxes may reach in three ways, and other names.
func (i *internet) begin(t *testing.T) {
	t.Helper()
	harness.NeedWorld(t)
	reachable.Names(t, harness.PublicAddr+" example.com www.example.com", harness.OtherAddr+" other.example.net")
	var certificate tls.Certificate
	i.roots, certificate = harness.Certify(t, "example.com", "www.example.com", "other.example.net")
	text, err := os.ReadFile(i.roots)
	if err != nil {
		t.Fatal(err)
	}
	i.certificate = string(text)
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // connections end at any moment
	for _, addr := range []string{harness.PublicAddr, harness.OtherAddr} {
		plain := &http.Server{ReadHeaderTimeout: time.Minute, Handler: i.handler(addr + ":80"), ErrorLog: quiet}
		secure := &http.Server{
			ReadHeaderTimeout: time.Minute, Handler: i.handler(addr + ":443"), ErrorLog: quiet,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		}
		go func() { _ = plain.Serve(reachable.Listen(t, addr+":80")) }()
		go func() { _ = secure.ServeTLS(reachable.Listen(t, addr+":443"), "", "") }()
		t.Cleanup(func() {
			plain.Close()
			secure.Close()
		})
	}
}

func (i *internet) handler(at string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isAllowed := r.Method == http.MethodGet && r.URL.Path == "/ok" &&
			(r.Host == "example.com" || r.Host == "www.example.com" && r.TLS != nil)
		if !isAllowed || !strings.HasPrefix(at, harness.PublicAddr) {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.escaped = append(i.escaped, fmt.Sprint(r.Method, " ", r.Host, r.URL.Path, " at ", at))
		}
		fmt.Fprintln(w, "welcome")
	})
}

// connect has the sandbox reach hosts.
func (w *world) connect() *world {
	w.networked = true
	w.create = append(w.create, "--allow-net", "example.com:80", "--net-allow", "example.com=GET /ok", "--allow-net", "www.example.com")
	return w
}

// asking are the functions of a command that connects: ask prints answer if the three hosts answer.
// escape prints what it reaches that it must not.
const (
	answer = "welcome\nwelcome\nwelcome"
	asking = `ok() { curl -sS --max-time 60 "$@" 2>/dev/null; }
no() { curl -sk --max-time 60 "$@" | grep -q welcome && echo "reached $*"; }
ask() { ok http://example.com/ok; ok https://example.com/ok; ok --cacert /tmp/authority.pem https://www.example.com/ok; }
escape() {
	no -d x https://example.com/ok; no https://example.com/other; no http://other.example.net/ok; no https://other.example.net/ok
	no http://93.184.216.35/ok; no -H 'Host: other.example.net' http://example.com/ok; no https://93.184.216.34/ok
}
cat > /tmp/authority.pem <<'END'
%sEND
`
)

// network has a command connect while something is struck, most often the egress process, which
// the command, the sandbox and its files outlive. Then connections work as before. None leads
// elsewhere.
func (w *world) network() {
	w.t.Helper()
	if w.random.IntN(4) > 0 {
		w.target = harness.Egress
	}
	functions := fmt.Sprintf(asking, outside.certificate)
	lives, said := w.strike(500*time.Millisecond, w.script(functions+`echo begun; i=0; while [ $i -lt 3 ]; do ask >/dev/null; escape; i=$((i+1)); done
i=0; until [ "$(ask)" = "`+answer+`" ]; do i=$((i+1)); [ $i -gt 50 ] && exit 1; sleep 0.1; done; echo end`)...)
	w.target = ""
	began := strings.HasPrefix(said, "begun\n") // the sandbox does not start if its egress process ends meanwhile
	if w.struck == harness.Egress && began && (!lives || said != "begun\nend\n") {
		w.fatal("the egress process was struck, and the command says %q", said)
	}
	if strings.Contains(said, "reached") {
		w.fatal("a command reached what is not allowed: %s", said)
	}
	w.serveAgain()
	if got := w.must(w.script(functions + "ask; escape; true")...); got != answer+"\n" {
		w.fatal("connections after a strike: %q", got)
	}
	w.must("audit", w.s.Name, "--net")
	outside.mu.Lock()
	defer outside.mu.Unlock()
	if len(outside.escaped) > 0 {
		w.fatal("requests that no rule allows: %q", outside.escaped)
	}
}

// keep notes an egress process, which must be gone in the end.
func (w *world) keep(pid int) {
	if _, known := w.egress[pid]; known {
		return
	}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil { // else it has ended
		w.egress[pid] = fd
	}
}

// egressLeft finds egress processes that are still there. It looks at all that were noted, because
// nothing of them names the sandbox.
func (w *world) egressLeft() []string {
	var left []string
	for pid, fd := range w.egress {
		if has, err := pollfd.Wait(fd, unix.POLLIN, 0); has == 0 && err == nil {
			left = append(left, fmt.Sprint("egress process ", pid))
			continue
		}
		unix.Close(fd)
		delete(w.egress, pid)
	}
	return left
}
