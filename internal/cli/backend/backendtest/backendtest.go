// Package backendtest says what each backend.Backend does, in tests that run on every
// implementation.
package backendtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// OddNames are names of files that a text must not change.
var OddNames = []string{"-rf", " space ", "line\nfeed", "b\\x0a", "\xff\xfe", "ü", "%2e%2e", "a;b|c&$(d)", ".wh.x"}

// Suite is an implementation under test, and the state directory of this host.
type Suite struct {
	Backend  backend.Backend
	Home     *record.Home
	IsServer bool
	// Root is a directory of the host of the sandboxes. They may mount what is below it, and write.
	Root string
}

// Run runs the tests.
func (s Suite) Run(t *testing.T) {
	for name, test := range map[string]func(*testing.T, Suite){
		"an unknown sandbox is not found by any method": testUnknown,
		"a sandbox is made, found, listed and removed":  testMade,
		"a new sandbox holds nothing":                   testEmpty,
		"a command has its streams":                     testStreams,
		"changes are listed":                            testListed,
		"changes are applied and discarded":             testChanges,
		"a change of the source is a conflict":          testConflict,
		"names survive as they are":                     testOddNames,
		"what changed since it was shown is left out":   testShown,
		"a running sandbox is not removed":              testRunning,
		"changes keep a sandbox from being removed":     testPending,
		"the view follows the policy":                   testView,
		"a policy is replaced at once":                  testPolicy,
		"commands may run at the same time":             testConcurrently,
		"the log tells what happened":                   testAudit,
		"changes in a mount are listed":                 testMounts,
		"changes in a mount are applied and discarded":  testMountApply,
		"what was shown of a mount is remembered apart": testMountShown,
		"a mount has a view":                            testMountView,
		"scratch directories are stored":                testScratch,
		"a state is kept, restored and compared":        testSnapshots,
		"forks begin with a state":                      testForks,
		"a fork is merged":                              testMerge,
		"a server refuses what only a host can do":      testLocalOnly,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

// writable lets a sandbox write everywhere but at secret.
var writable = backend.Rules{Note: "test", Rules: []policy.Rule{
	{Pattern: "**", Permission: policy.Write, Source: "test"},
	{Pattern: "/secret", Permission: policy.None, Priority: 10, Source: "test"},
}}

// files are those of the source.
var files = map[string]string{"kept": "kept\n", "old": "old\n", "gone": "gone\n", "secret": "hidden\n"}

// create makes a sandbox of a new directory with files, and removes it after the test.
func (s Suite) create(t *testing.T, name string) (sb backend.Sandbox, dir string) {
	t.Helper()
	dir = t.TempDir()
	for file, content := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source, err := s.Home.ResolveSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	sb, err = s.Backend.Create(t.Context(), backend.NewSandbox{Name: name, Source: source, Rules: writable, Net: "none"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.Backend.Remove(context.WithoutCancel(t.Context()), sb.Ref(), backend.RemoveForced); err != nil {
			t.Error(err)
		}
	})
	return sb, dir
}

// enter starts a sandbox until the test ends.
func (s Suite) enter(t *testing.T, sb backend.Sandbox) backend.Live {
	t.Helper()
	live, err := s.Backend.Enter(t.Context(), sb, backend.EnterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return live
}

// sh runs a script in a live sandbox, with input.
func sh(t *testing.T, live backend.Live, script, input string) (exit backend.Exit, stdout, stderr string) {
	t.Helper()
	running, err := live.Attach(t.Context(), backend.Command{Argv: []string{"/bin/sh", "-c", script}})
	if err != nil {
		t.Error(err)
		return exit, "", ""
	}
	if _, err := running.Write([]byte(input)); err != nil {
		t.Error(err)
	}
	running.CloseInput()
	var out, errs bytes.Buffer
	if exit, err = running.Wait(&out, &errs); err != nil {
		t.Error(err)
	}
	return exit, out.String(), errs.String()
}

// change runs a script in a sandbox, which ends.
func (s Suite) change(t *testing.T, sb backend.Sandbox, script string) {
	t.Helper()
	live := s.enter(t, sb)
	if exit, _, stderr := sh(t, live, script, ""); exit.Code != 0 {
		t.Errorf("%s: exit code %d: %s", script, exit.Code, stderr)
	}
	if err := live.Leave(); err != nil {
		t.Error(err)
	}
}

func (s Suite) changes(t *testing.T, sb backend.Sandbox) backend.Changes {
	t.Helper()
	c, err := s.Backend.Changes(t.Context(), sb.Ref(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// listed are the paths that a review of names lists.
func listed(t *testing.T, c backend.Changes, paths ...vpath.Path) map[vpath.Path]review.FileDiff {
	t.Helper()
	r, err := c.Review(t.Context(), paths, backend.Names)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	found := map[vpath.Path]review.FileDiff{}
	for _, f := range r.Files() {
		found[f.Path] = f
	}
	return found
}

func wantKind(t *testing.T, what string, err error, want errdefs.Kind) {
	t.Helper()
	if !errdefs.Is(err, want) {
		t.Errorf("%s: %v, want the kind %s", what, err, want)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Error(err)
	}
	return string(content)
}
