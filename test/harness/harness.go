// Package harness runs the real binary for the tests below test/.
//
// Build makes it once for a test process. A Sandbox is a source directory and
// a state directory of its own that the test's end removes, after it has
// checked that nothing of the sandbox is left running or mounted.
package harness

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/needs"
)

// runTimeout bounds one command, so that a hang fails its own test and says
// what it was doing.
const runTimeout = 2 * time.Minute

// Build builds cmd/agentfense into dir, static as it ships, and returns its
// path.
func Build(dir string) (string, error) {
	path := filepath.Join(dir, "agentfense")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", path, "github.com/agentfense/agentfense/cmd/agentfense")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
}

// Sandbox is one named sandbox and what surrounds it.
type Sandbox struct {
	Binary string
	Source string // the source directory
	Home   string // AGENTFENSE_HOME
	Name   string
	t      testing.TB
}

// New makes a source directory with files (path to content; a path that ends
// in a slash is a directory) and an empty state directory.
func New(t testing.TB, binary string, files map[string]string) *Sandbox {
	t.Helper()
	needs.FUSE(t)
	needs.Bwrap(t)
	s := &Sandbox{Binary: binary, Source: t.TempDir(), Home: t.TempDir(), Name: "attack", t: t}
	for path, content := range files {
		s.Write(path, content)
	}
	t.Cleanup(s.checkGone)
	return s
}

// Write makes a file or directory of the source.
func (s *Sandbox) Write(path, content string) {
	s.t.Helper()
	full := filepath.Join(s.Source, path)
	dir := filepath.Dir(full)
	if strings.HasSuffix(path, "/") {
		dir = full
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if dir == full {
		return
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// Read returns the content of a file of the source.
func (s *Sandbox) Read(path string) string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.Source, path))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(data)
}

// Result is what a command printed and how it ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Agentfense runs a verb with its arguments in the source directory.
func (s *Sandbox) Agentfense(args ...string) Result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := s.Command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		s.t.Fatalf("agentfense %q: %v, %v\n%s", args, err, ctx.Err(), stderr.String())
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// Command returns a verb that is not started yet.
func (s *Sandbox) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Binary, args...)
	cmd.Dir = s.Source
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+s.Home)
	return cmd
}

// Run runs a shell script inside the sandbox. Flags are those of `run`.
func (s *Sandbox) Run(script string, flags ...string) Result {
	s.t.Helper()
	args := append([]string{"run", "--name", s.Name}, flags...)
	return s.Agentfense(append(args, "--", "sh", "-c", script)...)
}

// RunProgram runs the test binary itself inside, as the program called name
// (see Programs), for what a shell cannot do.
func (s *Sandbox) RunProgram(name string, args []string, flags ...string) Result {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	all := append([]string{"run", "--name", s.Name, "--mount", self + ":/opt/program"}, flags...)
	all = append(all, "--env", programVariable+"="+name, "--", "/opt/program")
	return s.Agentfense(append(all, args...)...)
}

const programVariable = "AGENTFENSE_TEST_PROGRAM"

// Programs runs the program that the environment names, if it names one, and
// does not return then. A TestMain calls it first.
func Programs(programs map[string]func(args []string) int) {
	name := os.Getenv(programVariable)
	if name == "" {
		return
	}
	program, ok := programs[name]
	if !ok {
		os.Stderr.WriteString("no test program " + name + "\n")
		os.Exit(99)
	}
	os.Exit(program(os.Args[1:]))
}

// checkGone stops the sandbox and fails the test if a mount of it is left in
// this process's namespace.
func (s *Sandbox) checkGone() {
	s.Agentfense("stop", s.Name)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		s.t.Error(err)
	}
	if strings.Contains(string(mounts), s.Home) {
		s.t.Errorf("a mount below %s is left:\n%s", s.Home, mounts)
	}
}
