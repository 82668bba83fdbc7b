package attack_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// below makes a repository whose work tree is the directory above a sandbox's
// source, with a policy file there.
func below(t *testing.T, policy string) *harness.Sandbox {
	t.Helper()
	s := harness.New(t, binary, map[string]string{"sub/seen": "seen\n", "sub/hidden": "secret\n", ".agentfense.yaml": policy})
	if err := os.Mkdir(filepath.Join(s.Source, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.Source = filepath.Join(s.Source, "sub")
	return s
}

// A policy file of a directory above grants nothing that the user has not agreed to.
func TestPolicyAboveNeedsConsent(t *testing.T) {
	s := below(t, "version: 1\npreset: full-access\n")
	if r := s.Agentfense("run", "--", "cat", "seen"); r.Code != 125 || !strings.Contains(r.Stderr, "grants more than the default preset") {
		t.Errorf("%+v", r)
	}
	// Patterns that match all of the directory that the sandbox is made of are wider here than at
	// their root.
	s = below(t, "version: 1\npreset: agent-safe\n")
	output := filepath.Join(filepath.Dir(s.Source), "output")
	if err := os.Rename(s.Source, output); err != nil {
		t.Fatal(err)
	}
	s.Source = output
	if r := s.Agentfense("run", "--", "sh", "-c", "echo >new"); r.Code != 125 || !strings.Contains(r.Stderr, "grants more than the default preset") {
		t.Errorf("%+v", r)
	}
}

// What another user puts above a source is neither followed nor passed over.
func TestPolicyAboveOfAnotherUser(t *testing.T) {
	testenv.Root(t)
	s := below(t, "version: 1\npreset: agent-safe\nrules: [{pattern: hidden, permission: none}]\n")
	above := filepath.Dir(s.Source)
	if r := s.Agentfense("run", "--rm", "--", "ls"); r.Code != 0 || strings.Contains(r.Stdout, "hidden") {
		t.Fatalf("%+v", r)
	}
	if err := os.Chown(filepath.Join(above, ".agentfense.yaml"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if r := s.Agentfense("run", "--", "ls"); r.Code != 125 || !strings.Contains(r.Stderr, "another user owns it") {
		t.Errorf("%+v", r)
	}
	// A repository of another user is none: whoever may write to /tmp could make one there.
	if err := os.Chown(filepath.Join(above, ".git"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if r := s.Agentfense("run", "--rm", "--", "ls"); r.Code != 0 || !strings.Contains(r.Stdout, "hidden") {
		t.Errorf("%+v", r)
	}
}

// A link in the place of the file above is refused.
func TestPolicyAboveIsNoLink(t *testing.T) {
	s := below(t, "version: 1\n")
	file := filepath.Join(filepath.Dir(s.Source), ".agentfense.yaml")
	if err := errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file)); err != nil {
		t.Fatal(err)
	}
	if r := s.Agentfense("run", "--", "ls"); r.Code != 125 || !strings.Contains(r.Stderr, "symbolic link") {
		t.Errorf("%+v", r)
	}
}
