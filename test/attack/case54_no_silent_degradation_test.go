package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// refusedToStart checks that a run ended with 125 and each of texts, that its
// command did not run, and that it left nothing.
func refusedToStart(t *testing.T, s *harness.Sandbox, args []string, texts ...string) {
	t.Helper()
	r := s.Agentfense(append(append([]string{"run", "--name", s.Name}, args...), "--", "sh", "-c", "echo ran; touch ran")...)
	if r.Code != 125 || r.Stdout != "" {
		t.Errorf("exit code %d, want 125; stdout %q", r.Code, r.Stdout)
	}
	for _, text := range texts {
		if !strings.Contains(r.Stderr, text) {
			t.Errorf("stderr does not say %q:\n%s", text, r.Stderr)
		}
	}
	var unknown inspection // it never was
	unknown.Record.Name = s.Name
	if left := processesOf(t, s, unknown); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if left := mountsOf(t, s, s.Name); len(left) > 0 {
		t.Errorf("a mount is left in %v", left)
	}
	if r := s.Agentfense("ls", "--quiet"); r.Stdout != "" {
		t.Errorf("a sandbox is left: %q", r.Stdout)
	}
	if exists(filepath.Join(s.Source, "ran")) {
		t.Error("the source changed")
	}
}

func TestWithoutBubblewrapNothingStarts(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		t.Setenv("PATH", t.TempDir())
		refusedToStart(t, s, nil, "bubblewrap is not installed", "install bubblewrap")
		if r := s.Agentfense("doctor"); r.Code != 125 || !strings.Contains(r.Stdout, "install bubblewrap") {
			t.Errorf("doctor: %d\n%s", r.Code, r.Stdout)
		}
	})
}

// A bubblewrap without the necessary features counts as missing.
func TestWithBadBubblewrapNothingStarts(t *testing.T) {
	tests := []struct{ name, script, want string }{
		{"one that is too old", `[ "$1" = --version ] && echo bubblewrap 0.4.0 && exit; echo "bwrap: Unknown option --disable-userns" >&2; exit 1`, "too old"},
		{"one that has no namespaces", `[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit; echo "bwrap: No permissions to create a new namespace" >&2; exit 1`, "namespace"},
		{"one that only runs the command", `while [ "$1" != -- ]; do shift; done; shift; exec "$@"`, "bubblewrap"},
		{"one that says nothing", "exit 0", "ended"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := harness.New(t, binary, nil)
			dir, err := os.MkdirTemp("/var/tmp", "agentfense-attack") // bwrap finds another /tmp
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o755); err != nil { // it runs as the sandbox's own user
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "bwrap"), []byte("#!/bin/sh\n"+tt.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			refusedToStart(t, s, nil, tt.want)
		})
	}
}

// If an ordinary user may not open the device, the error says how to permit it.
func TestWithoutFUSENothingStarts(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, nil, harness.Ordinary)
	// Ordinary holds the device open to all, and other tests off it.
	if err := os.Chmod("/dev/fuse", 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chmod("/dev/fuse", 0o666); err != nil {
			t.Error(err)
		}
	})
	refusedToStart(t, s, nil, "/dev/fuse", "chmod 0666 /dev/fuse")
	if r := s.Agentfense("doctor"); r.Code != 125 || !strings.Contains(r.Stdout, "chmod 0666 /dev/fuse") {
		t.Errorf("doctor: %d\n%s", r.Code, r.Stdout)
	}
}

// A limit that is asked and cannot be enforced is an error: here an ordinary
// user has no cgroup of the own. One of processes needs none (case 48), and does
// not stand for another.
func TestLimitsThatCannotHoldAreRefused(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, nil, harness.Ordinary)
	for _, limit := range [][]string{{"--memory", "64M"}, {"--cpus", "1"}, {"--memory", "64M", "--pids", "50"}} {
		t.Run(strings.Join(limit, " "), func(t *testing.T) {
			refusedToStart(t, s, limit, "cgroup", strings.TrimPrefix(limit[0], "--")[:3])
		})
	}
}

// A requested network is provided or refused, never replaced.
func TestUnknownIsolationIsRefused(t *testing.T) {
	s := harness.New(t, binary, nil)
	refusedToStart(t, s, []string{"--net", "allow"}, "--net")
	refusedToStart(t, s, []string{"--net", ""}, "--net")
	refusedToStart(t, s, []string{"--runtime", "none"}, "runtime")
}
