// Package network_test tells what a sandbox reaches that may reach named hosts: stories, and
// attacks on that network. All servers are the test's own, in a network of its own.
package network_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/test/harness"
)

var (
	binary string
	world  *harness.World
)

func TestMain(m *testing.M) {
	harness.Programs(programs)
	os.Exit(harness.InWorld(&world, func() int { return harness.RunTests(m, &binary, harness.BuildWithServer) }))
}

// programs run inside, as this test binary (harness.Programs). A program's name is its key.
var programs = map[string]func(args []string) int{
	resolveByThemselves: resolve,
	tunnelNames:         tunnel,
	greetHosts:          greet,
	gatherConnections:   gather,
	reachOut:            reach,
	getSockets:          getEach,
	speakProtocols:      speak,
	connectOften:        connect,
	smuggleRequests:     smuggle,
	spellHosts:          spell,
	floodHosts:          flood,
	askHosts:            ask,
	crowdHosts:          crowd,
	askAsSystem:         asSystem,
	listenInside:        listenAt,
	serveInside:         serve,
	tryAll:              try,
}

// names are those that the host's resolver knows.
var names = []string{
	harness.PublicAddr + " example.com www.example.com deep.www.example.com",
	harness.OtherAddr + " other.example.net",
	harness.PrivateAddr + " inner.example.com",
	harness.Metadata + " metadata.example.com",
	"127.0.0.1 rebound.example.com",
	"::ffff:10.1.2.3 mapped.example.com",
	harness.HostAddr + " host.example.com",
	harness.PublicAddr + " pypi.org files.pythonhosted.org registry.npmjs.org proxy.golang.org",
	harness.PublicAddr6 + " six.example.com",
	harness.SilentAddr6 + " both.example.com",
	harness.PublicAddr + " both.example.com",
	harness.PublicAddr + " index.crates.io static.crates.io deb.debian.org",
}

// A site adds to what the hosts serve, by patterns that begin with a host.
type site func(t *testing.T, mux *http.ServeMux)

// internet serves every name at every address of the world, at ports 80 and 443, as sites say. It
// returns the certificate of the authority that has signed for them, a file that every user may
// read.
func internet(t *testing.T, sites ...site) (authority string) {
	t.Helper()
	harness.NeedWorld(t)
	world.Names(t, names...)
	authority, certificate := harness.Certify(t, "example.com", "*.example.com", "*.www.example.com", "other.example.net",
		"pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "proxy.golang.org", "*.crates.io")
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	handler := handler(t, sites)
	addrs := []string{harness.PublicAddr, harness.OtherAddr, harness.PrivateAddr, harness.Metadata}
	if harness.HasIPv6() {
		addrs = append(addrs, "["+harness.PublicAddr6+"]")
	}
	for _, addr := range addrs {
		plain := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
		go func() { _ = plain.Serve(world.Listen(t, addr+":80")) }()
		secure := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, TLSConfig: config}
		go func() { _ = secure.ServeTLS(world.Listen(t, addr+":443"), "", "") }()
		t.Cleanup(func() {
			plain.Close()
			secure.Close()
		})
	}
	return authority
}

// handler answers with the host that was asked for, and serves a git repository at /repo.git.
func handler(t *testing.T, sites []site) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/endless", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	mux.HandleFunc("/"+mark, func(http.ResponseWriter, *http.Request) { smuggledThrough.Add(1) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "this is %s\n", r.Host) })
	mux.HandleFunc("/hold", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "held")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/reflect/", reflectSecret)
	mux.Handle("/reflect/away", http.RedirectHandler("https://other.example.net/reflect/", http.StatusFound))
	if path, err := exec.Command("git", "--exec-path").Output(); err == nil {
		root := t.TempDir()
		repository(t, filepath.Join(root, "repo.git"))
		mux.Handle("/repo.git/", &cgi.Handler{
			Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
			Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
		})
	}
	for _, s := range sites {
		s(t, mux)
	}
	return mux
}

// repository makes a git repository with a file.
func repository(t *testing.T, dir string) {
	t.Helper()
	script := `git init -q --bare "$1" && cd "$1" && tree=$(printf '100644 blob %s\tREADME\n' $(echo hello | git hash-object -w --stdin) | git mktree) &&
git update-ref HEAD $(git -c user.name=me -c user.email=me@example.com commit-tree -m first $tree)`
	if out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("git: %v\n%s", err, out)
	}
}

// eachUser runs a test as root and as an ordinary user.
func eachUser(t *testing.T, test func(t *testing.T, who ...harness.Option)) {
	t.Run("root", func(t *testing.T) { test(t) })
	t.Run("ordinary user", func(t *testing.T) { test(t, harness.Ordinary) })
}

// flags allow hosts and show the authority's certificate inside, as /opt/authority.pem.
func flags(authority string, hosts ...string) []string {
	all := []string{"--mount", authority + ":/opt/authority.pem", "--env", "CURL_CA_BUNDLE=/opt/authority.pem", "--env", "GIT_SSL_CAINFO=/opt/authority.pem"}
	for _, h := range hosts {
		all = append(all, "--allow-net", h)
	}
	return all
}
