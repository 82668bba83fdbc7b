// Package named_test runs real coding agents that reach the hosts of their models by name: all of
// these are the test's own, in a network of its own.
package named_test

import (
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

var (
	binary string
	world  *harness.World
	others = flag.Bool("agents.others", false, "install and test all agents, not only Claude Code")
)

// installed are the agents that are installed before the network is the test's own.
var installed = map[bool][]string{false: {"claude"}, true: {"claude", "gemini"}}

func TestMain(m *testing.M) {
	flag.Parse()
	for _, name := range installed[*others] {
		if _, err := exec.LookPath("npm"); err != nil {
			break // the tests say so
		}
		if out, err := exec.Command("../../../scripts/agents", name).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "install %s: %v\n%s", name, err, out)
			os.Exit(1)
		}
	}
	os.Exit(harness.InWorld(&world, func() int { return harness.RunTests(m, &binary, harness.Build) }))
}

// person has a home directory with a project in it.
type person struct {
	t             testing.TB
	home, project string
	env           []string
	handler       atomic.Pointer[http.Handler] // of all hosts
}

// newPerson makes a home directory with files, and hosts that serve the handler over TLS.
func newPerson(t *testing.T, agent string, files map[string]string, handler http.Handler, hosts ...string) *person {
	t.Helper()
	harness.NeedWorld(t)
	testenv.FUSE(t)
	testenv.Bwrap(t)
	testenv.Command(t, "npm", "node")
	program, err := exec.Command("../../../scripts/agents", agent).Output()
	if err != nil {
		t.Fatalf("install %s: %v", agent, err)
	}
	world.Names(t, harness.PublicAddr+" "+strings.Join(hosts, " "))
	authority, certificate := harness.Certify(t, hosts...)
	p := &person{t: t, home: harness.OpenDir(t)}
	p.serve(handler)
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*p.handler.Load()).ServeHTTP(w, r) })
	server := &http.Server{Handler: all, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	go func() { _ = server.ServeTLS(world.Listen(t, harness.PublicAddr+":443"), "", "") }()
	t.Cleanup(func() { server.Close() })

	p.project = filepath.Join(p.home, "project")
	p.env = []string{"HOME=" + p.home, "PATH=" + filepath.Dir(strings.TrimSpace(string(program))) + ":" + os.Getenv("PATH"), "LANG=C.UTF-8", "SSL_CERT_FILE=" + authority}
	p.write(map[string]string{"project/app.txt": "one\n"})
	p.write(files)
	t.Cleanup(func() { p.agentfense("", "prune", "--yes", "--force") })
	return p
}

// serve makes the hosts serve a handler from now on.
func (p *person) serve(handler http.Handler) { p.handler.Store(&handler) }

func (p *person) write(files map[string]string) {
	p.t.Helper()
	for name, content := range files {
		path := filepath.Join(p.home, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// agentfense runs the command line in the project. env, if not "", is one more variable.
func (p *person) agentfense(env string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = p.project, append(slices.Clip(p.env), strings.Fields(env)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must is agentfense that has to succeed.
func (p *person) must(env string, args ...string) (stdout, stderr string) {
	p.t.Helper()
	stdout, stderr, err := p.agentfense(env, args...)
	if err != nil {
		p.t.Fatalf("agentfense %q: %v\n%s\n%s", args, err, stdout, stderr)
	}
	return stdout, stderr
}

// read returns the content of a file below the home directory, "" if there is none.
func (p *person) read(name string) string {
	content, _ := os.ReadFile(filepath.Join(p.home, name))
	return string(content)
}

// wantAll checks that a text contains each of the parts, and none of those that begin with "!".
func wantAll(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		part, not := strings.CutPrefix(part, "!")
		if strings.Contains(text, part) == not {
			t.Errorf("%s contains %q: %v, want %v\n%.2000s", what, part, not, !not, text)
		}
	}
}
