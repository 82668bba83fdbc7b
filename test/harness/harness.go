// Package harness runs the real binary for the tests below test/.
//
// Build makes it once for a test process. A Sandbox is a source directory and
// a state directory of its own that the test's end removes, after it has
// checked that nothing of the sandbox is left running or mounted.
package harness

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// runTimeout bounds one command, so that a hang fails its own test and says
// what it was doing.
const runTimeout = 2 * time.Minute

// Build builds cmd/agentfense into dir, static as it ships, and returns its path.
// The program agentfense-server is missing beside it.
func Build(dir string) (string, error) {
	path := filepath.Join(dir, "agentfense")
	if err := build(path, "github.com/agentfense/agentfense/cmd/agentfense"); err != nil {
		return "", err
	}
	return path, os.Chmod(dir, 0o755) // an ordinary user runs it too
}

// BuildAloneToCrash is Build of a program that can be killed at the points of
// package failpoint.
func BuildAloneToCrash(dir string) (string, error) {
	path := filepath.Join(dir, "agentfense")
	if err := build(path, "github.com/agentfense/agentfense/cmd/agentfense", "-tags=crashpoints"); err != nil {
		return "", err
	}
	return path, os.Chmod(dir, 0o755)
}

// BuildOther is Build of a program that says it is of another build.
func BuildOther(dir string) (string, error) {
	path := filepath.Join(dir, "agentfense")
	return path, build(path, "github.com/agentfense/agentfense/cmd/agentfense",
		"-ldflags=-s -w -X github.com/agentfense/agentfense/internal/lib/executable.version=another")
}

// BuildWithServer is Build of both programs.
func BuildWithServer(dir string) (string, error) { return buildBoth(dir) }

// BuildToCrash is BuildWithServer of a program that can be killed at the points
// of package failpoint.
func BuildToCrash(dir string) (string, error) { return buildBoth(dir, "-tags=crashpoints") }

func buildBoth(dir string, flags ...string) (string, error) {
	for _, name := range []string{"agentfense", "agentfense-server"} {
		if err := build(filepath.Join(dir, name), "github.com/agentfense/agentfense/cmd/"+name, flags...); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "agentfense"), os.Chmod(dir, 0o755)
}

// build makes path a copy of a program. The packages of a test run share what they
// link, in bin/test of the checkout: go build links again only what has changed.
func build(path, program string, flags ...string) error {
	shared, err := sharedDir(flags)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(shared, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	linked := filepath.Join(shared, filepath.Base(program))
	cmd := exec.Command("go", append(append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"}, flags...), "-o", linked, program)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err == nil { // by another process: a fork of ours could hold the file open for writing
		out, err = exec.Command("cp", linked, path).CombinedOutput()
	}
	if err != nil {
		return fmt.Errorf("build %s: %w: %s", program, err, out)
	}
	return nil
}

// sharedDir is where programs lie that are linked with the flags.
func sharedDir(flags []string) (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	variant := sha256.Sum256([]byte(strings.Join(flags, "\x00")))
	dir := filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "bin", "test", hex.EncodeToString(variant[:4]))
	return dir, os.MkdirAll(dir, 0o755)
}

// Main builds the binary for the tests of a package, as build does, runs them,
// and ends the process with their exit code.
func Main(tests interface{ Run() int }, binary *string, build func(dir string) (string, error)) {
	os.Exit(RunTests(tests, binary, build))
}

// RunTests is Main that returns the exit code.
func RunTests(tests interface{ Run() int }, binary *string, build func(dir string) (string, error)) int {
	dir, err := os.MkdirTemp("", "agentfense-test")
	if err == nil {
		defer os.RemoveAll(dir)
		*binary, err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := tests.Run()
	for _, left := range endLeft(dir) {
		fmt.Fprintln(os.Stderr, "the tests left a process:", left)
		code = 1
	}
	return code
}

// Sandbox is one named sandbox and what surrounds it.
type Sandbox struct {
	Binary string
	Source string // the source directory
	Home   string // AGENTFENSE_HOME
	Name   string
	user   *syscall.Credential // who runs agentfense, nil: we ourselves
	t      testing.TB
}

// An Option changes what New makes.
type Option func(*Sandbox)

// Ordinary lets an ordinary user own the source and the state and run every
// command. It needs root, unless an ordinary user runs the tests anyway.
func Ordinary(s *Sandbox) { ordinary(s, 65534, nil) }

// OrdinaryIn is Ordinary with the user of a number, who is in further groups too. It
// needs root.
func OrdinaryIn(uid uint32, groups ...uint32) Option {
	return func(s *Sandbox) {
		testenv.Root(s.t)
		ordinary(s, uid, groups)
	}
}

func ordinary(s *Sandbox, uid uint32, groups []uint32) {
	testenv.OpenFUSE(s.t)
	testenv.UserNS(s.t)
	if os.Geteuid() != 0 {
		return
	}
	s.user = &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}
	for _, dir := range []string{s.Source, s.Home} {
		if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // testing's own
			s.t.Fatal(err)
		}
		s.Own(dir)
	}
}

// Own gives a file to the sandbox's user.
func (s *Sandbox) Own(path string) {
	s.t.Helper()
	if s.user == nil {
		return
	}
	if err := os.Lchown(path, int(s.user.Uid), int(s.user.Gid)); err != nil {
		s.t.Fatal(err)
	}
}

// New makes a source directory with files (path to content; a path that ends
// in a slash is a directory) and an empty state directory.
func New(t testing.TB, binary string, files map[string]string, options ...Option) *Sandbox {
	t.Helper()
	testenv.FUSE(t)
	testenv.Bwrap(t)
	s := &Sandbox{Binary: binary, Source: t.TempDir(), Home: t.TempDir(), Name: "attack", t: t}
	for _, option := range options {
		option(s)
	}
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
	for d := dir; d != s.Source && len(d) > len(s.Source); d = filepath.Dir(d) {
		s.Own(d)
	}
	if dir == full {
		return
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
	s.Own(full)
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

// KilledAt runs a verb that is killed at a point of package failpoint.
func (s *Sandbox) KilledAt(point string, args ...string) {
	s.t.Helper()
	armed := filepath.Join(s.t.TempDir(), "point")
	if err := os.WriteFile(armed, []byte(point), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(armed), 0o755); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := s.Command(ctx, args...)
	cmd.Env = append(cmd.Env, failpoint.Variable+"="+armed)
	out, _ := cmd.CombinedOutput() // how it ended is looked at below
	// An ordinary user's verb may be a child of the process that was started.
	const byChild = 128 + int(syscall.SIGKILL)
	if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || state.Signal() != syscall.SIGKILL && state.ExitStatus() != byChild {
		s.t.Fatalf("agentfense %q was not killed at %q: %s\n%s", args, point, cmd.ProcessState, out)
	}
}

// Command returns a verb that is not started yet.
func (s *Sandbox) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.Binary, args...)
	cmd.Dir = s.Source
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+s.Home)
	if s.user != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user}
	}
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
	return s.Agentfense(s.ProgramCommand(name, args, flags)...)
}

// ProgramCommand is the command line of RunProgram.
func (s *Sandbox) ProgramCommand(name string, args, flags []string) []string {
	s.t.Helper()
	self, err := copyOfSelf(filepath.Dir(s.Binary))
	if err != nil {
		s.t.Fatal(err)
	}
	all := append([]string{"run", "--name", s.Name, "--mount", self + ":/opt/program"}, flags...)
	all = append(all, "--env", ProgramVariable+"="+name, "--", "/opt/program")
	return append(all, args...)
}

var copying sync.Mutex

// copyOfSelf returns the path of this program in dir, where, unlike where go
// test put it, an ordinary user finds it.
func copyOfSelf(dir string) (string, error) {
	copying.Lock()
	defer copying.Unlock()
	path := filepath.Join(dir, "program")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, data, 0o755)
}

// ProgramVariable names the program in the environment, for one that a session
// runs.
const ProgramVariable = "AGENTFENSE_TEST_PROGRAM"

// Programs runs the program that the environment names, if it names one, and
// does not return then. A TestMain calls it first.
func Programs(programs map[string]func(args []string) int) {
	name := os.Getenv(ProgramVariable)
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
