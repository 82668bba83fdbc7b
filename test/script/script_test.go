// Package script_test tells each feature as a story in testdata/*.txtar,
// through the real binary.
package script_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

var binary string

func TestMain(m *testing.M) {
	testscript.Main(built{m}, programs)
}

// built runs the tests with the binary.
type built struct{ tests *testing.M }

// Run builds it, unless whoever started these tests has.
func (b built) Run() int {
	if binary = os.Getenv(binaryVariable); binary != "" {
		return b.tests.Run()
	}
	return harness.RunTests(b.tests, &binary, harness.BuildWithServer)
}

// TestStories runs every story. In each, HOME and AGENTFENSE_HOME are
// directories of its own, and the source is the story's work directory below
// "repo".
func TestStories(t *testing.T) {
	testenv.FUSE(t)
	testenv.Bwrap(t)
	testenv.Command(t, "bash", "fish", "git", "zsh")
	run(t, "testdata")
}

// TestDockerStories runs those that need a docker daemon, whose image is $IMAGE.
func TestDockerStories(t *testing.T) {
	testenv.FUSE(t)
	testenv.Docker(t)
	run(t, "testdata/docker", "DOCKER_HOST="+testenv.DockerDaemon(t), "IMAGE="+testenv.DockerImage)
}

func run(t *testing.T, dir string, environment ...string) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds:                serverCommands,
		Condition: func(name string) (bool, error) {
			if program, ok := strings.CutPrefix(name, "inside:"); ok {
				return isInside(program), nil
			}
			switch name {
			case "root":
				return os.Geteuid() == 0, nil
			case "overlay":
				return testenv.TakesOverlay() == nil, nil
			}
			return false, fmt.Errorf("condition %q is unknown", name)
		},
		Setup: func(e *testscript.Env) error {
			e.Values[serversKey{}] = &servers{}
			state := filepath.Join(e.WorkDir, ".state")
			e.Setenv("AGENTFENSE_HOME", state)
			e.Setenv("HOME", filepath.Join(e.WorkDir, ".home"))
			e.Setenv("BIN", filepath.Dir(binary))
			e.Setenv("PATH", filepath.Dir(binary)+":"+os.Getenv("PATH"))
			e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			e.Setenv("GIT_AUTHOR_NAME", "A U Thor")
			e.Setenv("GIT_AUTHOR_EMAIL", "author@example.com")
			e.Setenv("GIT_COMMITTER_NAME", "C O Mitter")
			e.Setenv("GIT_COMMITTER_EMAIL", "committer@example.com")
			for _, v := range environment {
				name, value, _ := strings.Cut(v, "=")
				e.Setenv(name, value)
			}
			return os.MkdirAll(e.Getenv("HOME"), 0o755)
		},
	})
}
