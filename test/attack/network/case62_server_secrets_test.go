package network_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/wire"
)

// serveSecret starts a server that has the secret in a file, with which a client may name it. It
// returns the server's state directory, that file, and what the server logs.
func serveSecret(t *testing.T, authority string) (home, file string, log *bytes.Buffer) {
	t.Helper()
	home, file, log = t.TempDir(), filepath.Join(t.TempDir(), "key"), &bytes.Buffer{}
	config := filepath.Join(home, "server.yaml")
	text := "secrets: [{name: API_KEY, source: 'file:" + file + "', hosts: [example.com], requests: ['GET /reflect/**']}]\n"
	for path, content := range map[string]string{config: text, file: secretValue + "\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(binary, "serve", "--config", config)
	cmd.Env = slices.Concat(os.Environ(), wire.AnyPorts, []string{"AGENTFENSE_HOME=" + home, "SSL_CERT_FILE=" + authority})
	cmd.Stderr = log
	server, err := wire.Serve(cmd, home)
	if err != nil {
		t.Fatal(err, log)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, log)
		}
	})
	t.Setenv("AGENTFENSE_ENDPOINT", server.Addr)
	t.Setenv("AGENTFENSE_TOKEN", server.Token)
	return home, file, log
}

// A client of a server uses a secret that the operator has listed, and nothing that it can ask of
// the server tells the value.
func TestAServersSecretIsUsedAndNotKnown(t *testing.T) {
	authority := internet(t)
	home, file, log := serveSecret(t, authority)
	s := harness.New(t, binary, nil)
	agentfense := func(args ...string) string {
		t.Helper()
		r := s.Agentfense(args...)
		if r.Code != 0 {
			t.Fatalf("agentfense %q: exit %d: %s", args, r.Code, r.Stderr)
		}
		if forms := found([]byte(r.Stdout+r.Stderr), secretValue); len(forms) > 0 {
			t.Errorf("agentfense %q printed the secret: %q", args, forms)
		}
		return r.Stdout
	}
	t.Cleanup(func() { agentfense("rm", "--force", s.Name) })
	const script = `
at=http://api-key.agentfense.internal
curl -sS -H "Authorization: Bearer $API_KEY" $at/reflect/ > all; head -n1 all
for path in /other /reflect/../other; do curl -sS --path-as-is -o /dev/null -w '%{http_code}\n' $at$path; done
curl -sS -o /dev/null -w '%{http_code}\n' https://example.com/reflect/ 2>/dev/null || echo refused
cat all; env`
	answer := agentfense("run", "--name", s.Name, "--detach", "--preset", "full-access", "--secret", "API_KEY")
	if got := agentfense("exec", s.Name, "--", "sh", "-c", script); !strings.HasPrefix(got, "right=true\n403\n403\n000\nrefused\n") {
		t.Errorf("inside: %s", got)
	}
	ask := func() string {
		return s.Agentfense("exec", s.Name, "--", "sh", "-c", `curl -sS -H "Authorization: Bearer $API_KEY" http://api-key.agentfense.internal/reflect/ | head -n1`).Stdout
	}
	old := egressOf(t, &harness.Sandbox{Home: home, Name: s.Name})
	signal(t, old, syscall.SIGKILL)
	testenv.Eventually(t, "the process has ended", func() bool { return syscall.Kill(old, 0) != nil })
	testenv.Eventually(t, "the secret is used again", func() bool { return ask() == "right=true\n" })

	for _, args := range [][]string{{"inspect", s.Name, "--json"}, {"audit", s.Name, "--json"}, {"logs", s.Name}, {"ls", "--json"}, {"diff", s.Name}, {"policy", "explain", "--sandbox", s.Name, "all"}} {
		answer += agentfense(args...)
	}
	if strings.Contains(answer, file) {
		t.Errorf("the client learns the place of the secret: %s", answer)
	}
	contains(t, "the audit log", answer, `"rule":"secret API_KEY"`)
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // it is gone
		}
		b, _ := os.ReadFile(path) // it may be gone
		if forms := found(b, secretValue); len(forms) > 0 {
			t.Errorf("%s has the secret: %q", path, forms)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(file, []byte("sk-ant-another-value-of-the-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ask(); got != "right=true\n" {
		t.Errorf("before the next start: %q", got)
	}
	agentfense("stop", s.Name)
	if got := ask(); got != "right=false\n" {
		t.Errorf("after it: %q, want that the other value is sent", got)
	}
	if forms := found(log.Bytes(), secretValue); len(forms) > 0 {
		t.Errorf("the server's log has the secret: %q", forms)
	}
}
