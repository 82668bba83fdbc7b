package apply_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// The test binary plays other processes: with applyEnv it applies the sandbox
// "fix" of that home, with againEnv it is a test run by another user or in a
// mount namespace of its own.
const (
	applyEnv = "AGENTFENSE_TEST_APPLY"
	againEnv = "AGENTFENSE_TEST_AGAIN"
)

func TestMain(m *testing.M) {
	if home := os.Getenv(applyEnv); home != "" {
		os.Exit(applyOnce(home))
	}
	os.Exit(m.Run())
}

func applyOnce(home string) int {
	h, err := record.OpenHomeAt(home)
	if err == nil {
		var s *record.Sandbox
		if s, err = h.Open("fix"); err == nil {
			fmt.Println("begins")
			_, err = apply.Changes(context.Background(), s, apply.Options{})
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// again runs the test t once more in a process with the attributes and
// reports whether this is that process. env is added to its environment.
func again(t *testing.T, attr *syscall.SysProcAttr, env ...string) bool {
	t.Helper()
	if os.Getenv(againEnv) != "" {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), againEnv+"=1"), env...)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func TestApplyReportsWhatTheHostRefuses(t *testing.T) {
	if os.Geteuid() == 0 {
		dir, err := os.MkdirTemp("", "ordinary")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if !again(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, "TMPDIR="+dir) {
			return
		}
	}
	b := newBench(t, tree{"ok": "1", "sealed/f": "1", "gone": "1"})
	b.agent(func(a *agent) {
		a.write("/ok", "2")
		a.write("/sealed/f", "2")
		a.write("/sealed/g", "2")
		a.remove("/gone")
	})
	sealed := filepath.Join(b.dir, "sealed")
	if err := os.Chmod(sealed, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(sealed, 0o755)
	r, err := apply.Changes(t.Context(), b.box, apply.Options{})
	// A deletion may be half of a rename whose other half failed.
	want := map[string]apply.Outcome{"/ok": apply.Applied, "/sealed/f": apply.Failed, "/sealed/g": apply.Failed, "/gone": apply.Skipped}
	if diff := cmp.Diff(want, outcomes(r)); diff != "" || !errdefs.Is(err, errdefs.Denied) {
		t.Errorf("Apply = %v (-want +got):\n%s", err, diff)
	}
	if got, want := b.changes(), []string{"D /gone", "M /sealed/f", "A /sealed/g"}; !cmp.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	// What a command may have brought about hides nothing else.
	broken := errors.New("broken")
	drop := func([]changes.Version) ([]vpath.Path, error) { return nil, broken }
	if _, err := apply.Changes(t.Context(), b.box, apply.Options{Drop: drop}); !errors.Is(err, broken) || errdefs.Is(err, errdefs.Denied) {
		t.Errorf("Apply that fails to drop = %v, want that", err)
	}
	if err := os.Chmod(sealed, 0o755); err != nil {
		t.Fatal(err)
	}
	b.apply()
	if diff := cmp.Diff(tree{"ok": "2", "sealed/": "", "sealed/f": "2", "sealed/g": "2"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

// An ordinary user's supervisor can write to a read-only directory of the
// delta, an ordinary user's apply cannot to one of the source.
func TestApplyOpensADirectoryBeforeItFillsIt(t *testing.T) {
	testenv.Root(t)
	b := newBench(t, tree{"d/": ""})
	if err := os.Chmod(filepath.Join(b.dir, "d"), 0o555); err != nil {
		t.Fatal(err)
	}
	b.agent(func(a *agent) { a.chmod("/d", 0o755); a.write("/d/f", "new") })
	if err := os.Chmod(filepath.Dir(b.dir), 0o711); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{b.dir, b.home.Dir()} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, 65534, 65534))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), applyEnv+"="+b.home.Dir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("apply: %v: %s", err, out)
	}
	if diff := cmp.Diff(tree{"d/": "", "d/f": "new"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

func TestApplyOnAFullDisk(t *testing.T) {
	testenv.Root(t)
	if !again(t, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}) {
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, tree{})
	if err := unix.Mount("full", b.dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(b.dir, unix.MNT_DETACH)
	build(t, b.dir, tree{"a": "old", "z": "old", "gone": "1"})
	box, err := b.home.Create(recordOf(t, b.home, b.dir, "small"))
	if err != nil {
		t.Fatal(err)
	}
	b.box = box
	large := strings.Repeat("x", 300<<10)
	b.agent(func(a *agent) { a.write("/a", "new"); a.write("/m", large); a.write("/z", "new"); a.remove("/gone") })
	r, err := apply.Changes(t.Context(), b.box, apply.Options{})
	want := map[string]apply.Outcome{"/a": apply.Skipped, "/m": apply.Failed, "/z": apply.Skipped, "/gone": apply.Skipped}
	if diff := cmp.Diff(want, outcomes(r)); diff != "" || !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("Apply = %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(tree{"a": "old", "z": "old", "gone": "1"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if err := unix.Mount("", b.dir, "", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	b.apply()
	if diff := cmp.Diff(tree{"a": "new", "m": large, "z": "new"}, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
}

// Many files are written several at once.
func TestApplyOfManyFilesOnAFullDisk(t *testing.T) {
	testenv.Root(t)
	if !again(t, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}) {
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, tree{})
	if err := unix.Mount("full", b.dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(b.dir, unix.MNT_DETACH)
	source, want := tree{}, tree{"d/": "", "new/": ""}
	for i := range 100 {
		name := fmt.Sprintf("d/%03d", i)
		source[name] = "old"
		want[name] = strings.Repeat("n", 4096)
		want[fmt.Sprintf("new/%03d", i)] = strings.Repeat("x", 100+i)
	}
	source["d/first"], source["d/last"] = "old", "old"
	want["d/first"], want["d/last"] = "linked", "linked"
	build(t, b.dir, source)
	box, err := b.home.Create(recordOf(t, b.home, b.dir, "small"))
	if err != nil {
		t.Fatal(err)
	}
	b.box = box
	b.agent(func(a *agent) {
		a.mkdir("/new")
		for name, content := range withoutDirs(want) {
			if content != "linked" {
				a.write(vpath.Path("/"+name), content)
			}
		}
		a.write("/d/first", "linked")
		a.remove("/d/last")
		a.link("/d/first", "/d/last")
	})
	r, err := apply.Changes(t.Context(), b.box, apply.Options{})
	if !errdefs.Is(err, errdefs.Exhausted) || r.Count(apply.Failed) != 1 {
		t.Errorf("Apply = %v, %d failed", err, r.Count(apply.Failed))
	}
	if diff := cmp.Diff(source, withoutDirs(snapshot(t, b.dir))); diff != "" {
		t.Errorf("after the apply that failed, source (-want +got):\n%s", diff)
	}
	if err := unix.Mount("", b.dir, "", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	b.apply()
	if diff := cmp.Diff(want, snapshot(t, b.dir)); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	var one, other unix.Stat_t
	if err := errors.Join(unix.Stat(filepath.Join(b.dir, "d/first"), &one), unix.Stat(filepath.Join(b.dir, "d/last"), &other)); err != nil || one.Ino != other.Ino {
		t.Errorf("two names of one file are two files, %v", err)
	}
}

func TestAKilledApplyLeavesEachFileOldOrNew(t *testing.T) {
	source, want := tree{}, tree{}
	old, fresh := strings.Repeat("old", 5000), strings.Repeat("new", 7000)
	for i := range 20 {
		source[fmt.Sprintf("changed%02d", i)] = old
		source[fmt.Sprintf("gone/%02d", i)] = old
		want[fmt.Sprintf("changed%02d", i)] = fresh
		want[fmt.Sprintf("made/%02d", i)] = fresh
	}
	source["becomes/a"] = old
	want["becomes"] = fresh
	for range 4 {
		b := newBench(t, source)
		b.agent(func(a *agent) {
			a.removeAll("/gone")
			a.removeAll("/becomes")
			a.mkdir("/made")
			for name := range want {
				a.write(vpath.Path("/"+name), fresh)
			}
		})
		// Later each time, so that it also ends where it is slow.
		for most := 20; b.applyAndKill(time.Duration(rand.IntN(most)) * time.Millisecond); most += most / 4 {
			for name, content := range withoutDirs(snapshot(t, b.dir)) {
				if content != old && content != fresh {
					t.Fatalf("%s has %d bytes, neither old nor new", name, len(content))
				}
			}
		}
		b.apply() // in case it was killed just before its end
		if diff := cmp.Diff(want, withoutDirs(snapshot(t, b.dir))); diff != "" {
			t.Errorf("source (-want +got):\n%s", diff)
		}
		if left := b.changes(); len(left) != 0 {
			t.Errorf("left %q", left)
		}
	}
}

// applyAndKill lets another process apply and kills it after the delay from
// when it begins. It reports whether that came in time.
func (b *bench) applyAndKill(delay time.Duration) bool {
	b.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), applyEnv+"="+b.home.Dir())
	var out bytes.Buffer
	cmd.Stderr = &out
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	_, _ = stdout.Read(make([]byte, 1)) // it begins, or how it ended says why not
	time.Sleep(delay)
	if err := cmd.Process.Kill(); err != nil && !strings.Contains(err.Error(), "finished") {
		b.t.Fatal(err)
	}
	err = cmd.Wait()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if err != nil && !status.Signaled() {
		b.t.Fatalf("%v: %s", err, out.String())
	}
	return status.Signaled()
}

// Somebody swaps a directory of the source for a symbolic link, again and
// again, while the sandbox's changes below it are applied.
func TestApplyFollowsNoPlantedLink(t *testing.T) {
	b := newBench(t, tree{"d/f": "old", "d/gone": "old"})
	outside := t.TempDir()
	build(t, outside, tree{"f": "outside", "gone": "outside"})
	b.agent(func(a *agent) {
		a.write("/d/f", "new")
		a.remove("/d/gone")
		a.write("/d/made", "new")
	})
	dir, link := filepath.Join(b.dir, "d"), filepath.Join(b.dir, "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	})
	for range 50 {
		_, _ = apply.Changes(t.Context(), b.box, apply.Options{})
	}
	close(stop)
	swapper.Wait()
	if diff := cmp.Diff(tree{"f": "outside", "gone": "outside"}, snapshot(t, outside)); diff != "" {
		t.Errorf("apply reached out of the source (-want +got):\n%s", diff)
	}
}

func TestApplyStopsWhenItIsCanceled(t *testing.T) {
	b := newBench(t, tree{"f": "old"})
	b.agent(func(a *agent) { a.write("/f", "new") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := apply.Changes(ctx, b.box, apply.Options{})
	if !errdefs.Is(err, errdefs.Canceled) || r.Count(apply.Skipped) != 1 || snapshot(t, b.dir)["f"] != "old" {
		t.Errorf("Apply = %v, %v", r, err)
	}
	b.apply()
}
