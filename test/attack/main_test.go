// Package attack_test tries to break out of a sandbox, one escape a file, from
// inside a real one through the real binary.
//
// What a shell can do is a script. What needs system calls of its own is a
// program: a function of this package that runs inside as the test binary
// itself, checks what it meets and reports what was not as it had to be.
package attack_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

var (
	binary   string
	programs = map[string]func(args []string) int{}
)

// No test runs on the main thread: one that leaves the mount namespace with its
// thread would take what /proc/self shows along.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) {
	harness.Programs(programs)
	harness.Main(m, &binary, harness.Build)
}

// program registers what runs inside and returns the name to run it by. A file
// declares its programs as package variables:
//
//	var linkIt = program("link it", func(in *inside, args []string) { … })
func program(name string, run func(in *inside, args []string)) string {
	if programs[name] != nil {
		panic("two programs are called " + name)
	}
	programs[name] = func(args []string) int {
		in := &inside{}
		run(in, args)
		if in.checks == 0 {
			in.fail("the program checked nothing")
		}
		return min(in.failures, 1)
	}
	return name
}

// inside is what a program reports with.
type inside struct {
	checks, failures int
}

func (in *inside) fail(format string, args ...any) {
	in.failures++
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// is checks that what was got equals want.
func (in *inside) is(what string, got, want any) {
	in.checks++
	if !reflect.DeepEqual(got, want) {
		in.fail("%s: got %v, want %v", what, got, want)
	}
}

// errno checks how a system call ended; 0 is success.
func (in *inside) errno(what string, err error, want unix.Errno) {
	in.checks++
	if got := errnoOf(err); got != want {
		in.fail("%s: got %s, want %s", what, errnoName(got), errnoName(want))
	}
}

// refused checks that a system call ended with one of several errors, where
// kernels differ.
func (in *inside) refused(what string, err error, want ...unix.Errno) {
	in.checks++
	if got := errnoOf(err); !slices.Contains(want, got) {
		in.fail("%s: got %s", what, errnoName(got))
	}
}

// works checks that what the program needs for its attempt succeeded.
func (in *inside) works(what string, err error) {
	if err != nil {
		in.fail("%s: %v", what, err)
	}
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		panic(err)
	}
	return errno
}

func errnoName(e unix.Errno) string {
	if e == 0 {
		return "success"
	}
	return unix.ErrnoName(e)
}

// passes runs a program inside and fails the test with what it reports.
func passes(t *testing.T, s *harness.Sandbox, name string, args []string, flags ...string) {
	t.Helper()
	if r := s.RunProgram(name, args, flags...); r.Code != 0 {
		t.Errorf("%s: exit code %d\n%s%s", name, r.Code, r.Stdout, r.Stderr)
	}
}

// eachUser runs a test once as the user who runs the tests, usually root, and
// once as an ordinary user.
func eachUser(t *testing.T, test func(t *testing.T, who ...harness.Option)) {
	t.Run("as we are", func(t *testing.T) { test(t) })
	t.Run("as an ordinary user", func(t *testing.T) { test(t, harness.Ordinary) })
}

// prints runs a script inside, which must succeed, and compares what it prints.
func prints(t *testing.T, s *harness.Sandbox, script, want string, flags ...string) {
	t.Helper()
	r := s.Run(script, flags...)
	if r.Code != 0 || r.Stdout != want {
		t.Errorf("%s\nexit code %d, stdout %q, want %q\n%s", script, r.Code, r.Stdout, want, r.Stderr)
	}
}

// agentfense runs a verb, which must succeed, and returns what it prints.
func agentfense(t *testing.T, s *harness.Sandbox, args ...string) string {
	t.Helper()
	r := s.Agentfense(args...)
	if r.Code != 0 {
		t.Fatalf("agentfense %s: exit code %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}
