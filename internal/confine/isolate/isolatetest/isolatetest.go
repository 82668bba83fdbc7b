// Package isolatetest is the conformance suite of isolate.Isolator.
//
// A test binary that calls Run must call Main from TestMain: the binary also runs as PID 1,
// as leader, as a supervisor to be killed, and as the probes inside. Run runs the suite
// twice, each time in a new mount namespace: as root, which drops to another user, and as
// an ordinary user in a user namespace, like a supervisor.
package isolatetest

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/confine/isolate/fdpass"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// Factory makes the isolator under test.
type Factory func(t testing.TB) isolate.Isolator

// First arguments that select a role of the test binary.
const (
	probeVerb = "__probe" // a probe inside
	enterVerb = "__enter" // from a user's process into its own namespaces
)

// roleEnv has the role of a process in which Run runs.
const (
	roleEnv        = "AGENTFENSE_ISOLATETEST"
	suiteRole      = "suite"
	supervisorRole = "supervisor" // see supervise
)

// hostUser is the user to which root drops, and the ordinary user.
const hostUser = 65534

// Main runs the tests, or the role that the arguments name. It does not return.
func Main(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case guest.InitVerb:
			guest.Main()
		case guest.ExecVerb:
			guest.ExecMain()
		case fdpass.Verb:
			fdpass.Main(os.Args[2:])
		case probeVerb:
			os.Exit(probe(os.Args[2:]))
		case enterVerb:
			os.Exit(enter(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// images completes a spec for a runtime that shows the system of an image, uses the host's
// ids inside, makes control groups itself and works in the mount namespace of a daemon. It
// is nil for other runtimes.
var images func(*isolate.Spec)

// RunImages is Run for a runtime with images, as root only. prepare returns the function
// that completes a spec. RunImages calls it in the mount namespace of the suite, and again
// in a supervisor to be killed.
func RunImages(t *testing.T, factory Factory, prepare func(t *testing.T) func(*isolate.Spec)) {
	if os.Getenv(roleEnv) != "" {
		images = prepare(t)
	}
	if inRole(t, factory) {
		return
	}
	runAsRoot(t, publicCopy(t))
}

// inRole runs the role of this process, if any.
func inRole(t *testing.T, factory Factory) bool {
	switch os.Getenv(roleEnv) {
	case suiteRole:
		runCases(t, factory)
		return true
	case supervisorRole:
		supervise(t, factory)
		return true
	}
	return false
}

func runAsRoot(t *testing.T, binary string) {
	t.Run("as root", func(t *testing.T) {
		testenv.Root(t)
		cmd := exec.Command(binary, "-test.run=^"+t.Name()[:len(t.Name())-len("/as_root")]+"$", "-test.v")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		relay(t, cmd)
	})
}

// Run runs the suite. The test that calls it must call nothing else.
func Run(t *testing.T, factory Factory) {
	if inRole(t, factory) {
		return
	}
	binary := publicCopy(t)
	runAsRoot(t, binary)
	t.Run("as an ordinary user", func(t *testing.T) {
		testenv.UserNS(t)
		cmd := exec.Command(binary, enterVerb, binary, "-test.run=^"+t.Name()[:len(t.Name())-len("/as_an_ordinary_user")]+"$", "-test.v")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if os.Geteuid() == 0 {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: hostUser, Gid: hostUser}
		}
		relay(t, cmd)
	})
}

// relay runs the suite in another process and shows its output.
func relay(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Env = append(os.Environ(), roleEnv+"="+suiteRole, "TMPDIR=/tmp")
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range bytes.SplitSeq(out, []byte("\n")) {
		if bytes.Contains(line, []byte("--- SKIP")) {
			t.Logf("%s", line)
		}
	}
}

// publicCopy copies the test binary to a directory that other users can search.
func publicCopy(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "isolatetest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(dir, "binary")
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if closeErr := to.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	return path
}

// enter runs a command in a new user and mount namespace with all capabilities, like an
// ordinary user's supervisor.
func enter(argv []string) int {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	uid, gid := os.Geteuid(), os.Getegid()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			os.Stderr.WriteString(err.Error() + "\n")
		}
		return 1
	}
	return 0
}

// private ends the propagation of mounts to and from other mount namespaces.
func private(t *testing.T) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

func runCases(t *testing.T, factory Factory) {
	if images == nil {
		private(t)
	}
	unix.Umask(0) // like a supervisor
	for _, c := range slices.Concat(confinementCases, systemCases, lifeCases, restCases, grantCases, killCases, terminalCases) {
		if images == nil || !c.hostOnly {
			t.Run(c.name, func(t *testing.T) { c.run(t, factory) })
		}
	}
}

// testCase tests one promise of a runtime.
type testCase struct {
	name string
	run  func(t *testing.T, factory Factory)
	// hostOnly marks a promise that a runtime with images does not make.
	hostOnly bool
}
