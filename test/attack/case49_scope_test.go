package attack_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// A real systemd user manager of an ordinary user, in a mount namespace of the
// test's thread where cgroup v2 is all there is. It cannot be seen from outside.
const (
	managerUser = 65534
	runtimeDir  = "/run/user/65534"
	cgroupRoot  = "/sys/fs/cgroup"
)

// managed is a login of that user.
type managed struct {
	*harness.Sandbox
	t           *testing.T
	session     *os.File // the group that commands start in; root's, not delegated
	controllers []string // what the manager can give to its units
}

// newManaged starts the bus and the manager. The calling goroutine keeps its
// thread, which every child is started from.
func newManaged(t *testing.T) *managed {
	t.Helper()
	testenv.UserManager(t)
	s := harness.New(t, binary, nil, harness.Ordinary)
	runtime.LockOSThread() // for good: the thread ends with the test
	must(t, "a mount namespace", unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS))
	must(t, "private mounts", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, "mount /run", unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"))
	must(t, "unmount the cgroups", unix.Unmount(cgroupRoot, unix.MNT_DETACH))
	must(t, "mount cgroup2", unix.Mount("cgroup2", cgroupRoot, "cgroup2", 0, ""))
	must(t, "say that systemd runs", os.MkdirAll("/run/systemd/system", 0o755))
	must(t, "open that", os.Chmod("/run/systemd", 0o755))
	must(t, "make the runtime directory", os.MkdirAll(runtimeDir, 0o700))
	must(t, "open what is above it", os.Chmod(filepath.Dir(runtimeDir), 0o755)) // whatever our umask is
	must(t, "give it away", os.Chown(runtimeDir, managerUser, managerUser))

	top, err := os.MkdirTemp(cgroupRoot, "agentfense-test-")
	must(t, "make a group", err)
	t.Cleanup(func() { removeGroup(t, top) })
	controllers := handAllDown(t, cgroupRoot, top)
	must(t, "open the top group", os.Chmod(top, 0o755))
	m := &managed{Sandbox: s, t: t, controllers: controllers, session: makeGroup(t, filepath.Join(top, "session"))}
	manager := makeGroup(t, filepath.Join(top, "manager"))
	for _, dir := range []string{top, manager.Name()} {
		for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
			must(t, "delegate", os.Chown(filepath.Join(dir, file), managerUser, managerUser))
		}
	}
	m.serve(manager, "bus", "dbus-daemon", "--session", "--address=unix:path="+runtimeDir+"/bus", "--nofork", "--nopidfile", "--nosyslog")
	m.serve(manager, "systemd/private", "systemd", "--user", "--unit=basic.target")
	testenv.Eventually(t, "the manager is on the bus", func() bool {
		return m.command(manager, exec.Command("busctl", "--user", "--auto-start=no", "get-property", "org.freedesktop.systemd1",
			"/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "Version")).Run() == nil
	})
	return m
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func makeGroup(t *testing.T, dir string) *os.File {
	t.Helper()
	must(t, "make a group", os.Mkdir(dir, 0o755))
	must(t, "open a group", os.Chmod(dir, 0o755))
	f, err := os.Open(dir)
	must(t, "open a group", err)
	t.Cleanup(func() { f.Close() })
	return f
}

// handAllDown gives dirs' subgroups the controllers of limits, as far as the host
// has them on v2 and lets us, and returns them.
func handAllDown(t *testing.T, dirs ...string) []string {
	t.Helper()
	var names []string
	for _, name := range []string{"memory", "cpu", "pids"} {
		if !slices.ContainsFunc(dirs, func(dir string) bool {
			return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+name), 0o644) != nil
		}) {
			names = append(names, name)
		}
	}
	return names
}

// removeGroup kills what is in a group and below, and removes it.
func removeGroup(t *testing.T, top string) {
	must(t, "kill a group", os.WriteFile(filepath.Join(top, "cgroup.kill"), []byte("1"), 0o644))
	testenv.Eventually(t, "the test's groups are gone", func() bool {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // a group may go meanwhile
		})
		slices.Reverse(dirs)
		for _, dir := range dirs {
			_ = unix.Rmdir(dir) // looked at below
		}
		_, err := os.Stat(top)
		return errors.Is(err, os.ErrNotExist)
	})
}

// command makes cmd one of the user's, in a group.
func (m *managed) command(group *os.File, cmd *exec.Cmd) *exec.Cmd {
	if cmd.Env == nil {
		cmd.Env = os.Environ()
		cmd.Dir = "/"
	}
	cmd.Env = append(cmd.Env, "HOME="+runtimeDir, "XDG_RUNTIME_DIR="+runtimeDir, "DBUS_SESSION_BUS_ADDRESS=unix:path="+runtimeDir+"/bus")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: managerUser, Gid: managerUser},
		UseCgroupFD: true, CgroupFD: int(group.Fd()),
	}
	return cmd
}

// serve starts a daemon and waits for its socket.
func (m *managed) serve(group *os.File, socket string, args ...string) {
	m.t.Helper()
	cmd := m.command(group, exec.Command(args[0], args[1:]...))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Second
	must(m.t, "start "+args[0], cmd.Start())
	m.t.Cleanup(func() {
		_ = cmd.Process.Kill() // how it ends does not matter
		_ = cmd.Wait()
		if m.t.Failed() {
			m.t.Logf("%s: %s", args[0], said.String())
		}
	})
	testenv.Eventually(m.t, args[0]+" has its socket", func() bool {
		_, err := os.Stat(filepath.Join(runtimeDir, socket))
		return err == nil
	})
}

// agentfense runs a verb in the session of the user.
func (m *managed) agentfense(args ...string) harness.Result {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := m.command(m.session, m.Command(ctx, args...))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil || ctx.Err() != nil {
		m.t.Fatalf("agentfense %q: %v, %v", args, err, ctx.Err())
	}
	return harness.Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// scopeOf returns the directory of the scope that a process is in.
func scopeOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	must(t, "read the group", err)
	match := regexp.MustCompile(`(?m)^0::(/.*/agentfense-[^/]*\.scope)(/.*)?$`).FindStringSubmatch(string(text))
	if match == nil {
		t.Fatalf("process %d is in no scope of ours:\n%s", pid, text)
	}
	return filepath.Join(cgroupRoot, match[1])
}

// For a limit of an ordinary user without a delegated cgroup, the supervisor gets a
// separate scope, which the user owns and which ends with the sandbox. If v2 has the
// controller, the scope enforces the limit, else RLIMIT_NPROC does.
func TestUserManagerGivesAScope(t *testing.T) {
	m := newManaged(t)
	for _, end := range []string{"stopped", "killed"} { // no subtests: they have threads of their own
		wantCode(t, m.agentfense("run", "--detach", "--name", end, "--pids", "40"), 0)
		doc := inspect(t, m.Sandbox, end)
		if doc.Running == nil {
			t.Fatal("it does not run")
		}
		pid := doc.Running.PID
		scope := scopeOf(t, pid)
		var st unix.Stat_t
		if err := unix.Stat(scope, &st); err != nil || st.Uid != managerUser {
			t.Errorf("the scope is owned by %d: %v", st.Uid, err)
		}
		held := "rlimit"
		if slices.Contains(m.controllers, "pids") {
			held = "cgroup"
		}
		if started := events(t, m.Sandbox, end, "sandbox_started"); len(started) != 1 || !contains(started[0]["enforced"], held) {
			t.Errorf("audit: %v, want %s enforced", started, held)
		}
		r := m.agentfense("exec", end, "--", "sh", "-c", "i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done")
		if r.Code == 0 {
			t.Errorf("100 processes under --pids 40")
		}
		if end == "killed" {
			must(t, "kill", unix.Kill(pid, unix.SIGKILL))
		} else {
			wantCode(t, m.agentfense("stop", end), 0)
		}
		testenv.Eventually(t, "the scope is gone", func() bool {
			_, err := os.Stat(scope)
			return errors.Is(err, os.ErrNotExist)
		})
	}
}

// A limit that only a cgroup can enforce applies in the scope. Otherwise nothing starts,
// and the reason says what was tried and what is missing.
func TestScopeHoldsMemoryOrNothingStarts(t *testing.T) {
	m := newManaged(t)
	r := m.agentfense("run", "--name", m.Name, "--memory", "64M", "--", "sh", "-c", "head -c 300000000 /dev/zero | tail")
	if slices.Contains(m.controllers, "memory") {
		wantCode(t, r, 137)
		return
	}
	wantCode(t, r, 125)
	for _, want := range []string{"memory cannot be limited", "tried in a scope of the systemd user manager"} {
		if !strings.Contains(r.Stderr, want) {
			t.Errorf("stderr does not say %q:\n%s", want, r.Stderr)
		}
	}
}
