package network_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// needles are the forms of a text, without the ends that depend on what stands beside it.
func needles(text string) map[string][]byte {
	middle := text[len(text)/4:]
	forms := map[string][]byte{
		"as it is": []byte(middle), "percent": []byte(url.QueryEscape(middle)), "hexadecimal": []byte(hex.EncodeToString([]byte(middle))),
	}
	for skip := range 3 {
		b := base64.RawStdEncoding.EncodeToString([]byte(middle[skip:]))
		forms[fmt.Sprintf("base64, %d", skip)] = []byte(b[:len(b)-4])
		b = base64.RawURLEncoding.EncodeToString([]byte(middle[skip:]))
		forms[fmt.Sprintf("base64 for URLs, %d", skip)] = []byte(b[:len(b)-4])
	}
	return forms
}

// found returns the forms of a text that are in b.
func found(b []byte, text string) []string {
	var forms []string
	for name, n := range needles(text) {
		if bytes.Contains(b, n) {
			forms = append(forms, name)
		}
	}
	slices.Sort(forms)
	return forms
}

// memory returns what a process has in memory that it may write to, and its environment.
func memory(t *testing.T, pid int) []byte {
	t.Helper()
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil // it has ended
	}
	defer maps.Close()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil
	}
	defer mem.Close()
	var all []byte
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") {
			continue
		}
		const most = 256 << 20
		part := make([]byte, min(to-from, most))
		n, _ := mem.ReadAt(part, from) // pages may be gone
		all = append(all, part[:n]...)
	}
	return all
}

// checkMemory looks for the secret in all processes of a sandbox but the egress process, where it
// must be, and for the placeholder, which must be in one of them.
func checkMemory(t *testing.T, s *harness.Sandbox, placeholder string) {
	t.Helper()
	egress := egressOf(t, s)
	if len(found(memory(t, egress), secretValue)) == 0 {
		t.Error("the egress process does not have the secret: this test sees nothing")
	}
	seen, looked := false, 0
	for _, p := range harness.Processes(s.Home) {
		if p.PID == egress {
			continue
		}
		b := memory(t, p.PID)
		looked += len(b)
		seen = seen || len(found(b, placeholder)) > 0
		if forms := found(b, secretValue); len(forms) > 0 {
			t.Errorf("process %d, a %s, has the secret: %q", p.PID, p.Role, forms)
		}
	}
	if !seen {
		t.Errorf("no process has the placeholder: this test sees nothing, in %d bytes", looked)
	}
}

// checkFiles looks for the secret in all files of the sandbox.
func checkFiles(t *testing.T, s *harness.Sandbox) {
	t.Helper()
	eachFile(t, s, func(path string, b []byte) {
		if forms := found(b, secretValue); len(forms) > 0 {
			t.Errorf("%s has the secret: %q", path, forms)
		}
	})
}

// eachFile calls look with the content of each file of the sandbox.
func eachFile(t *testing.T, s *harness.Sandbox, look func(path string, b []byte)) {
	t.Helper()
	files := 0
	for _, dir := range []string{s.Home, s.Source} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // it is gone
			}
			b, _ := os.ReadFile(path) // it may be gone
			files++
			look(path, b)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 3 {
		t.Errorf("looked at %d files only", files)
	}
}

// Whatever a sandbox can reach does not tell the secret that it uses: memory, files, logs, the
// audit log, what commands print, and what a crash leaves.
func TestNothingTellsTheSecret(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		withSecret(t, authority)
		s := harness.New(t, binary, nil, who...)
		run := func(args ...string) string {
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
		run("run", "--name", s.Name, "--detach", "--secret", "API_KEY@example.com", "--write", "/**", "--", "sh", "-c", `
at=http://api-key.agentfense.internal/reflect/
answer=$(curl -sSv -H "Authorization: Bearer $API_KEY" $at 2>&1; curl -sSv -u "$API_KEY:$API_KEY" $at 2>&1; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n'; env)
echo "$answer" > seen; touch ready; echo "$answer"; sleep 1000 & wait`)
		testenv.Eventually(t, "the command has asked", func() bool { return s.Agentfense("exec", s.Name, "--", "test", "-e", "ready").Code == 0 })
		if seen := run("exec", s.Name, "--", "cat", "seen"); strings.Count(seen, "right=true") != 2 {
			t.Fatalf("the secret was not used:\n%s", seen)
		}
		placeholder := strings.TrimSpace(run("exec", s.Name, "--", "printenv", "API_KEY"))
		look := func() {
			t.Helper()
			for _, args := range [][]string{{"inspect", s.Name, "--json"}, {"audit", s.Name, "--json"}, {"logs", s.Name}, {"ls", "--json"}, {"audit", s.Name, "--net", "--json"}} {
				run(args...)
			}
			checkFiles(t, s)
		}
		checkMemory(t, s, placeholder)
		look()
		old := egressOf(t, s)
		signal(t, old, syscall.SIGQUIT) // Go writes where each goroutine is
		testenv.Eventually(t, "the process has ended", func() bool { return syscall.Kill(old, 0) != nil })
		testenv.Eventually(t, "the secret is used again", func() bool {
			return strings.Contains(s.Agentfense("exec", s.Name, "--", "curl", "-sS", "http://api-key.agentfense.internal/reflect/").Stdout, "right=true")
		})
		checkMemory(t, s, placeholder)
		look()
		run("stop", s.Name)
		look()
	})
}

// A process that takes the place of a killed one has no secret, until somebody who has it runs a
// command.
func TestANewProcessHasNoSecret(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		withSecret(t, authority)
		s := harness.New(t, binary, nil, who...)
		if r := s.Agentfense("run", "--name", s.Name, "--detach", "--secret", "API_KEY@example.com", "--", "sleep", "1000"); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		const ask = `for i in $(seq 100); do curl -sS -o /dev/null --max-time 60 -w '%{http_code}\n' http://api-key.agentfense.internal/reflect/ && break; done`
		want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", ask), "200\n")
		old := egressOf(t, s)
		signal(t, old, syscall.SIGKILL)
		testenv.Eventually(t, "the process has ended", func() bool { return syscall.Kill(old, 0) != nil })
		t.Setenv("API_KEY", "")
		r := s.Agentfense("exec", s.Name, "--", "sh", "-c", ask)
		want(t, r, "503\n")
		contains(t, "exec", r.Stderr, "the variable API_KEY is not set; requests that need it are refused")
		testenv.Eventually(t, "the refusal is in the audit log", func() bool {
			return strings.Contains(s.Agentfense("audit", s.Name).Stdout, "no value of secret API_KEY")
		})
		t.Setenv("API_KEY", secretValue)
		want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", ask), "200\n")
		s.Agentfense("stop", s.Name)
	})
}
