package fusefs_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/pollfd"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role, os.Args[1:]))
	}
	testenv.PrivateMounts()
	goleak.VerifyTestMain(m)
}

// The ids of the confined process. It has no capabilities, so the mode bits apply to it.
const (
	guestUID = 4711
	guestGID = 4712
)

// view is a mounted view with its source and delta.
type view struct {
	*fusefs.FS
	t      testing.TB
	dir    string // the mount
	source string
	layer  *layer.Stack

	mu      sync.Mutex
	denials []fusefs.Denial
	changes []fusefs.Change
}

// rules makes rules of "PATTERN=PERMISSION".
func rules(t testing.TB, specs ...string) []policy.Rule {
	t.Helper()
	var all []policy.Rule
	for _, s := range specs {
		pattern, name, _ := strings.Cut(s, "=")
		permission, err := policy.ParsePermission(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, policy.Rule{Pattern: pattern, Permission: permission, Source: s})
	}
	return all
}

func compile(t testing.TB, specs ...string) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(rules(t, specs...), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tree is a source: a path with a trailing slash is a directory, a content
// "-> TARGET" a symbolic link.
type tree map[string]string

func (tr tree) make(t testing.TB, dir string) {
	t.Helper()
	for path, content := range tr {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		target, link := strings.CutPrefix(content, "-> ")
		switch {
		case strings.HasSuffix(path, "/"):
			err = os.MkdirAll(full, 0o755)
		case link:
			err = os.Symlink(target, full)
		default:
			err = os.WriteFile(full, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// mount shows tr through the rules until the test ends.
func mount(t testing.TB, tr tree, specs ...string) *view {
	t.Helper()
	source := t.TempDir()
	tr.make(t, source)
	return mountSource(t, source, func(*fusefs.Options) {}, specs...)
}

func mountSource(t testing.TB, source string, change func(*fusefs.Options), specs ...string) *view {
	t.Helper()
	testenv.FUSE(t)
	home := t.TempDir()
	for _, dir := range []string{source, home, filepath.Dir(home)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	v := &view{t: t, dir: filepath.Join(home, "mnt"), source: source}
	handle, err := os.OpenFile(source, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { handle.Close() })
	if v.layer, err = layer.Open(layer.Options{Source: handle, Dir: filepath.Join(home, "layers"), Store: filepath.Join(home, "frozen")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.layer.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(v.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o := fusefs.Options{
		Layer: v.layer, Policy: compile(t, specs...), UID: guestUID, GID: guestGID,
		OnDenial: v.onDenial, OnChange: v.onChange, RepeatTime: time.Hour, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	change(&o)
	if v.FS, err = fusefs.Mount(v.dir, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Unmount(); err != nil {
			t.Error(err)
		}
	})
	if err := v.poll(); err != nil {
		t.Fatal(err)
	}
	return v
}

// poll makes the kernel learn that POLL is not implemented. Otherwise Go's poller would
// send POLL while this process, which serves the mount, cannot answer. Only tests access a
// mount from the process that serves it.
func (v *view) poll() error {
	fd, err := unix.Open(v.path(".go-fuse-epoll-hack"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = pollfd.Wait(fd, unix.POLLIN, 0)
	return err
}

func (v *view) onDenial(d fusefs.Denial) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.denials = append(v.denials, d)
}

func (v *view) onChange(c fusefs.Change) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes = append(v.changes, c)
}

func (v *view) path(rel string) string { return filepath.Join(v.dir, rel) }

func (v *view) read(rel string) string {
	v.t.Helper()
	b, err := os.ReadFile(v.path(rel))
	if err != nil {
		v.t.Fatal(err)
	}
	return string(b)
}

func (v *view) write(rel, content string) {
	v.t.Helper()
	if err := os.WriteFile(v.path(rel), []byte(content), 0o644); err != nil {
		v.t.Fatal(err)
	}
}

func (v *view) names(rel string) string {
	v.t.Helper()
	entries, err := os.ReadDir(v.path(rel))
	if err != nil {
		v.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func (v *view) stat(rel string) unix.Stat_t {
	v.t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(v.path(rel), &st); err != nil {
		v.t.Fatalf("lstat %s: %v", rel, err)
	}
	return st
}

// guest runs a shell command in the view as the confined process and returns its output,
// both streams together. The shell starts outside the mount and changes into it, because
// Go's fork must not access the mount.
func (v *view) guest(script string) string {
	v.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `cd "$0" && eval "$1"`, v.dir, script)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: guestUID, Gid: guestGID}}
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		v.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// requests returns how many requests do causes, by kind.
func (v *view) requests(do func()) map[string]uint64 {
	before := v.Stats()
	do()
	after := v.Stats()
	for k, n := range before {
		if after[k] -= n; after[k] == 0 {
			delete(after, k)
		}
	}
	return after
}

// denied waits for a denial of the operation at p.
func (v *view) denied(p vpath.Path, operation string) fusefs.Denial {
	v.t.Helper()
	var found fusefs.Denial
	testenv.Eventually(v.t, fmt.Sprintf("a denial of %s at %s", operation, p), func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		i := slices.IndexFunc(v.denials, func(d fusefs.Denial) bool { return d.Path == p && d.Operation == operation })
		if i >= 0 {
			found = v.denials[i]
		}
		return i >= 0
	})
	return found
}

// roleEnv makes this binary run a role instead of the tests.
const roleEnv = "FUSEFS_TEST_ROLE"

// play runs a role; see the tests that start it.
func play(role string, args []string) int {
	do, ok := roles[role]
	if !ok {
		return 2
	}
	if err := do(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

var roles = map[string]func([]string) error{"map": writeMapped, "user": seeAsUser}

// role runs this binary in the role as the confined process, with a working directory
// outside the mount.
func (v *view) role(name string, args ...string) {
	v.t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Dir, cmd.Env = "/", []string{roleEnv + "=" + name}
	if out, err := cmd.CombinedOutput(); err != nil {
		v.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

func limitDescriptors(n int) func(*fusefs.Options) {
	return func(o *fusefs.Options) { o.Descriptors = n }
}
