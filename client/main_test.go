//go:build linux

package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/wire"
)

var binary string

// root is a directory that sandboxes of the server may mount, and write.
var root string

// TestMain runs the tests beside a server, which is what a program finds by
// itself: the endpoint in the environment, the token in the state directory.
func TestMain(m *testing.M) {
	if os.Getenv(alone) != "" {
		os.Exit(m.Run())
	}
	os.Exit(harness.RunTests(served{m}, &binary, harness.BuildWithServer))
}

type served struct{ tests interface{ Run() int } }

// Run starts the server around the tests.
func (s served) Run() int {
	home, err := os.MkdirTemp("", "agentfense-client-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(home)
	os.Setenv("AGENTFENSE_HOME", home)
	if root, err = os.MkdirTemp("", "agentfense-root-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(root)
	config := filepath.Join(home, "server.yaml")
	text := fmt.Sprintf("mounts: {roots: [{path: %s, writable: true, keep: true}]}\nsecrets: [{name: API_KEY, source: 'cmd:echo the-value-is-not-known', hosts: [api.example.com]}]\n", root)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(binary, "serve", "--config", config)
	cmd.Env = append(append(os.Environ(), wire.AnyPorts...), "AGENTFENSE_NETWORK_ALLOW=example.com *.example.org", "AGENTFENSE_NETWORK_PUBLISH=true")
	cmd.Stderr = os.Stderr
	server, err := wire.Serve(cmd, home)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv("AGENTFENSE_ENDPOINT", server.Addr)
	code := s.tests.Run()
	if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		return 1
	}
	if remaining := left(home); len(remaining) > 0 {
		fmt.Fprintf(os.Stderr, "the tests have left:\n%s\n", strings.Join(remaining, "\n"))
		return 1
	}
	return code
}

// left are the processes and mounts of a state directory, and its sandboxes,
// once what was ending has had its time.
func left(home string) []string {
	const patience = 30 * time.Second
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(home, "sandboxes", "*"))
		commands, globErr := filepath.Glob("/proc/[0-9]*/cmdline")
		if err = errors.Join(err, globErr); err != nil {
			return []string{err.Error()}
		}
		for _, file := range append(commands, "/proc/self/mountinfo") {
			text, err := os.ReadFile(file)
			if err == nil && strings.Contains(string(text), home) {
				found = append(found, file+": "+strings.ReplaceAll(string(text), "\x00", " "))
			}
		}
		if len(found) == 0 || time.Now().After(deadline) {
			return found
		}
	}
}

// open returns a client of the server.
func open(t testing.TB) *client.Client {
	t.Helper()
	testenv.FUSE(t)
	testenv.Bwrap(t)
	c, err := client.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// linked makes a running sandbox of a directory with files.
func linked(t testing.TB, c *client.Client, preset string, files map[string]string) (*client.Sandbox, string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(dir+"/"+name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	base, err := c.LinkCodebase(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	box, err := c.CreateSandbox(t.Context(), base.ID, client.WithPreset(preset))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := box.Destroy(ctx); err != nil {
			t.Error(err)
		}
		if err := c.DeleteCodebase(ctx, base.ID); err != nil {
			t.Error(err)
		}
	})
	return box, dir
}
