package control_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/wire"
)

// server is one of the sandbox's own state directory.
type server struct {
	*wire.Server
	t    *testing.T
	home string
}

func serve(t *testing.T, box *harness.Sandbox, args ...string) *server {
	t.Helper()
	cmd := box.Command(context.Background(), append([]string{"serve"}, args...)...)
	cmd.Env = append(cmd.Env, wire.AnyPorts...)
	cmd.Stderr = os.Stderr
	served, err := wire.Serve(cmd, box.Home)
	s := &server{served, t, box.Home}
	if served != nil {
		t.Cleanup(s.end)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) end() {
	if s.Cmd.ProcessState != nil {
		return
	}
	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Error(err)
	}
	if err := s.Cmd.Wait(); err != nil {
		s.t.Errorf("serve: %v", err)
	}
	harness.EndSupervisors(s.t, s.home)
}

// ask asks the server as its operator.
func (s *server) ask(method, path, body string) (status int, text string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.URL+"/v1"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(got)
}

// knock is what a command inside says to an address of the host's loopback.
func knock(addr string) string {
	port := addr[strings.LastIndexByte(addr, ':')+1:]
	return `exec 3<>/dev/tcp/127.0.0.1/` + port + ` || { echo no way; exit; }
printf 'GET /v1/sandboxes HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' >&3
timeout 5 head -n1 <&3`
}

func within(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in:\n%s", word, text)
		}
	}
}

// What runs inside does not reach the server that made it.
func TestServerIsOutOfReach(t *testing.T) {
	box := harness.New(t, binary, map[string]string{"a": "a\n"})
	s := serve(t, box)
	for face, addr := range map[string]string{"grpc": s.Addr, "http": s.URL} {
		r := box.Agentfense("run", "--rm", "--", "bash", "-c", knock(addr))
		if strings.TrimSpace(r.Stdout) != "no way" {
			t.Errorf("%s: %q\n%s", face, r.Stdout, r.Stderr)
		}
	}
}

// On the host's network it reaches the address, and is nobody there: the token
// is nowhere inside.
func TestServerAsksForTheToken(t *testing.T) {
	box := harness.New(t, binary, map[string]string{"a": "a\n"})
	s := serve(t, box)
	r := box.Agentfense("run", "--rm", "--net", "host", "--", "bash", "-c", knock(s.URL))
	within(t, r.Stdout, "401")
	look := `env; cat ` + box.Home + `/token; cat /proc/*/environ /proc/*/cmdline 2>/dev/null`
	r = box.Agentfense("run", "--rm", "--net", "host", "--", "bash", "-c", look)
	if strings.Contains(r.Stdout, s.Token) {
		t.Error("the token is to be seen inside")
	}
	within(t, r.Stderr, "No such file or directory")
}

// A host directory around the state directory does not bring the token in, nor
// the records, by whichever way it is shared: it is refused, or the view hides them.
func TestStateIsNeverShared(t *testing.T) {
	box := harness.New(t, binary, nil)
	box.Home = filepath.Join(box.Source, "state")
	if err := os.Mkdir(box.Home, 0o700); err != nil {
		t.Fatal(err)
	}
	s := serve(t, box)
	for dir, why := range map[string]string{
		box.Home: "a directory of the server", filepath.Join(box.Home, "sandboxes"): "a directory of the server", "/": "the whole root",
	} {
		status, text := s.ask("POST", "/codebases:link", `{"name": "all", "ownerId": "me", "path": "`+dir+`"}`)
		if status != http.StatusBadRequest || !strings.Contains(text, why) {
			t.Errorf("link %s: %d %s", dir, status, text)
		}
	}
	all := s.must("POST", "/codebases:link", `{"name": "all", "ownerId": "me", "path": "`+box.Source+`"}`, "id")
	over := s.must("POST", "/sandboxes", `{"codebaseId": "`+all+`", "permissions": [{"pattern": "**", "permission": "PERMISSION_WRITE"}]}`, "id")
	s.must("POST", "/sandboxes/"+over+"/start", "{}", "status")
	status, text := s.ask("POST", "/sandboxes/"+over+"/exec", `{"command": "ls -A; cat state/token; mkdir state && echo made"}`)
	if status != http.StatusOK || strings.Contains(text, s.Token) || strings.Contains(text, `"stdout":"state`) || strings.Contains(text, "made") {
		t.Errorf("in the view of all: %d %s", status, text)
	}
	if status, text := s.ask("GET", "/codebases/"+all+"/files/state/token", ""); status == http.StatusOK || strings.Contains(text, s.Token) {
		t.Errorf("the file of the linked directory: %d %s", status, text)
	}
	for _, way := range []string{"--mount=" + box.Home, "--mount=" + box.Source + ":/opt/all"} {
		r := box.Agentfense("run", "--rm", "--dir", t.TempDir(), way, "--", "true")
		if r.Code != 125 {
			t.Errorf("%s: exit code %d\n%s", way, r.Code, r.Stderr)
		}
	}
}

// A server that asks for no token and a command on the host's network are
// never there at once.
func TestNoTokenAndTheHostsNetwork(t *testing.T) {
	box := harness.New(t, binary, map[string]string{"a": "a\n"})
	s := serve(t, box, "--no-auth")
	r := box.Agentfense("run", "--rm", "--net", "host", "--", "true")
	if r.Code != 125 {
		t.Errorf("beside a server without tokens: exit code %d", r.Code)
	}
	within(t, r.Stderr, "--no-auth", "serve with tokens")
	if r := box.Agentfense("run", "--rm", "--", "bash", "-c", knock(s.URL)); strings.TrimSpace(r.Stdout) != "no way" {
		t.Errorf("without a network: %q\n%s", r.Stdout, r.Stderr)
	}
	s.end()
	if r := box.Agentfense("run", "--detach", "--net", "host", "--name", box.Name, "--", "sleep", "600"); r.Code != 0 {
		t.Fatalf("without a server: exit code %d\n%s", r.Code, r.Stderr)
	}
	r = box.Agentfense("serve", "--no-auth")
	if r.Code != 1 {
		t.Errorf("serve beside a command on the host's network: exit code %d", r.Code)
	}
	within(t, r.Stderr, box.Name, "agentfense stop")
	if r := box.Agentfense("rm", "--force", box.Name); r.Code != 0 {
		t.Errorf("rm: %s", r.Stderr)
	}
	serve(t, box, "--no-auth")
}
