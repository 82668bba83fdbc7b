// Package script_test tells each feature as a story in testdata/*.txtar,
// through the real binary.
package script_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentfense/agentfense/internal/needs"
	"github.com/agentfense/agentfense/test/harness"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "agentfense-script")
	if err == nil {
		binary, err = harness.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// TestStories runs every story. In each, HOME and AGENTFENSE_HOME are
// directories of its own, and the source is the story's work directory below
// "repo".
func TestStories(t *testing.T) {
	needs.FUSE(t)
	needs.Bwrap(t)
	needs.Command(t, "git")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(e *testscript.Env) error {
			state := filepath.Join(e.WorkDir, ".state")
			e.Setenv("AGENTFENSE_HOME", state)
			e.Setenv("HOME", filepath.Join(e.WorkDir, ".home"))
			e.Setenv("PATH", filepath.Dir(binary)+":"+os.Getenv("PATH"))
			e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			e.Setenv("GIT_AUTHOR_NAME", "A U Thor")
			e.Setenv("GIT_AUTHOR_EMAIL", "author@example.com")
			e.Setenv("GIT_COMMITTER_NAME", "C O Mitter")
			e.Setenv("GIT_COMMITTER_EMAIL", "committer@example.com")
			return os.MkdirAll(e.Getenv("HOME"), 0o755)
		},
	})
}
