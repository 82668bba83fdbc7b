package fusefs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/linetest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestMountOptions(t *testing.T) {
	v := mount(t, nil, "**=write")
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var line string
	for l := range strings.Lines(string(b)) {
		if strings.Contains(l, " "+v.dir+" ") {
			line = l
		}
	}
	for _, want := range []string{"nosuid", "nodev", "default_permissions", "allow_other", "fuse.agentfense", "max_read=1048576"} {
		if !strings.Contains(line, want) {
			t.Errorf("mountinfo lacks %s: %s", want, line)
		}
	}
	if strings.Contains(line, v.source) {
		t.Errorf("mountinfo names the source: %s", line)
	}
}

// TestTheDeviceIsNotInherited: a process with /dev/fuse could answer the kernel.
func TestTheDeviceIsNotInherited(t *testing.T) {
	mount(t, nil, "**=write")
	out, err := exec.Command("/bin/ls", "-l", "/proc/self/fd").CombinedOutput()
	if err != nil || strings.Contains(string(out), "fuse") {
		t.Errorf("a child has:\n%s%v", out, err)
	}
}

func TestMountErrors(t *testing.T) {
	testenv.FUSE(t)
	source, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	s, err := layer.Open(layer.Options{Source: source, Dir: filepath.Join(t.TempDir(), "layers")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := compile(t, "**=read")
	for name, tt := range map[string]struct {
		dir  string
		o    fusefs.Options
		want errdefs.Kind
	}{
		"no such directory": {"/nonexistent/x", fusefs.Options{Layer: s, Policy: p}, errdefs.Unsupported},
		"no layer":          {t.TempDir(), fusefs.Options{Policy: p}, errdefs.Invalid},
		"no policy":         {t.TempDir(), fusefs.Options{Layer: s}, errdefs.Invalid},
	} {
		if _, err := fusefs.Mount(tt.dir, tt.o); !errdefs.Is(err, tt.want) {
			t.Errorf("%s: %v (%s), want %s", name, err, errdefs.KindOf(err), tt.want)
		}
	}
}

func TestUnmountWhileInUse(t *testing.T) {
	v := mount(t, tree{"f": "1"}, "**=write")
	cmd := exec.Command("/bin/sh", "-c", `cd "$0" && echo in && read x; cat f`, v.dir)
	cmd.Dir = "/"
	d := linetest.Start(t, cmd)
	d.Hear()
	if err := v.Unmount(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if _, _, err := d.End(); !errors.As(err, &exit) {
		t.Errorf("the process ended with %v, want a failure to read", err)
	}
	if err := v.Unmount(); err != nil {
		t.Errorf("unmounting again: %v", err)
	}
}

// TestAbortWithACopyOfTheMount: a copy in another mount namespace does not delay the end.
func TestAbortWithACopyOfTheMount(t *testing.T) {
	v := mount(t, tree{"f": "1\n"}, "**=write")
	cmd := exec.Command("/bin/sh", "-c", `cat "$0/f" && read x; exec cat "$0/f"`, v.dir)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	d := linetest.Start(t, cmd)
	d.Hear()
	aborted := make(chan error, 1)
	go func() { aborted <- v.Abort() }()
	var err error
	select {
	case err = <-aborted:
	case <-time.After(20 * time.Second):
		err = errors.New("it waits for the copy")
	}
	var exit *exec.ExitError
	if _, complaint, ended := d.End(); !errors.As(ended, &exit) || !strings.Contains(complaint, "not connected") {
		t.Errorf("who has the copy ended with %v, %q", ended, complaint)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestDoneWhenSomebodyElseUnmounts(t *testing.T) {
	v := mount(t, nil, "**=write")
	if err := unix.Unmount(v.dir, 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-v.Done():
	case <-time.After(20 * time.Second):
		t.Error("it is not done")
	}
}

func TestEveryEntryBelongsToTheSandbox(t *testing.T) {
	testenv.Root(t)
	v := mount(t, tree{"mine": "1", "others": "2", "dir/f": "3", "link": "-> mine"}, "**=write")
	for name, ids := range map[string][2]int{"mine": {1500, 1600}, "others": {0, 1700}, "dir": {1700, 0}, "link": {7, 7}} {
		if err := os.Lchown(filepath.Join(v.source, name), ids[0], ids[1]); err != nil {
			t.Fatal(err)
		}
		if st := v.stat(name); st.Uid != guestUID || st.Gid != guestGID {
			t.Errorf("%s belongs to %d:%d, want %d:%d", name, st.Uid, st.Gid, guestUID, guestGID)
		}
	}
	if err := os.Lchown(v.path("mine"), guestUID, guestGID); err != nil {
		t.Errorf("chown to the ids shown: %v", err)
	}
	if err := os.Lchown(v.path("mine"), 1, 1); !errors.Is(err, unix.EPERM) {
		t.Errorf("chown to another: %v, want EPERM", err)
	}
}

func TestStatfsShowsTheQuota(t *testing.T) {
	testenv.FUSE(t)
	source := t.TempDir()
	handle, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	s, err := layer.Open(layer.Options{
		Source: handle, Dir: filepath.Join(t.TempDir(), "layers"), Quota: layer.Quota{Bytes: 10 << 20, Inodes: 100},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v := mountSource(t, source, func(o *fusefs.Options) { o.Layer = s }, "**=write")
	var st unix.Statfs_t
	if err := unix.Statfs(v.dir, &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*uint64(st.Bsize) != 10<<20 || st.Files != 100 || st.Namelen != 255 {
		t.Errorf("statfs = %+v", st)
	}
	if err := os.WriteFile(v.path("big"), make([]byte, 20<<20), 0o644); !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing more than there is: %v", err)
	}
}

func TestExtendedAttributesDoNotExist(t *testing.T) {
	v := mount(t, tree{"f": "1"}, "**=write")
	if _, err := unix.Getxattr(v.path("f"), "user.x", nil); err != unix.EOPNOTSUPP {
		t.Errorf("getxattr: %v, want EOPNOTSUPP", err)
	}
	if err := unix.Setxattr(v.path("f"), "user.x", []byte("y"), 0); err != unix.EOPNOTSUPP {
		t.Errorf("setxattr: %v, want EOPNOTSUPP", err)
	}
}

// TestAsAnOrdinaryUser mounts in a user and mount namespace of a user without rights on the
// host.
func TestAsAnOrdinaryUser(t *testing.T) {
	testenv.OpenFUSE(t)
	testenv.UserNS(t)
	testenv.Root(t)
	const uid = 65534
	home := t.TempDir()
	tree{"src/f": "content", "src/theirs": "root's"}.make(t, home)
	for _, name := range []string{"", "src", "src/f"} {
		if err := os.Chown(filepath.Join(home, name), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(home+"/src/theirs", 0o600), os.Chmod(home, 0o755), os.Chmod(filepath.Dir(home), 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", home)
	cmd.Dir, cmd.Env = "/", []string{roleEnv + "=user"}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: ids, GidMappings: ids,
		Credential: &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "f: uid 0 mode 644 content\ntheirs: uid 0 mode 0 permission denied\nwritten: more\n"
	if string(out) != want {
		t.Errorf("it saw\n%swant\n%s", out, want)
	}
	if b, err := os.ReadFile(home + "/src/f"); err != nil || string(b) != "content" {
		t.Errorf("the source holds %q, %v", b, err)
	}
}

// seeAsUser mounts HOME/src, looks at it, and writes.
func seeAsUser(args []string) error {
	home := args[0]
	source, err := os.OpenFile(home+"/src", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer source.Close()
	s, err := layer.Open(layer.Options{Source: source, Dir: home + "/layers", User: &layer.User{}})
	if err != nil {
		return err
	}
	defer s.Close()
	p, err := policy.Compile([]policy.Rule{{Pattern: "**", Permission: policy.Write}}, policy.Options{})
	if err != nil {
		return err
	}
	if err := os.Mkdir(home+"/mnt", 0o755); err != nil {
		return err
	}
	fs, err := fusefs.Mount(home+"/mnt", fusefs.Options{Layer: s, Policy: p})
	if err != nil {
		return err
	}
	v := &view{FS: fs, dir: home + "/mnt"}
	if err := v.poll(); err != nil {
		return err
	}
	for _, name := range []string{"f", "theirs"} {
		var st unix.Stat_t
		if err := unix.Lstat(v.path(name), &st); err != nil {
			return err
		}
		b, err := os.ReadFile(v.path(name))
		if os.IsPermission(err) {
			b = []byte("permission denied")
		} else if err != nil {
			return err
		}
		fmt.Printf("%s: uid %d mode %o %s\n", name, st.Uid, st.Mode&0o777, b)
	}
	if err := os.WriteFile(v.path("f"), []byte("more"), 0o644); err != nil {
		return err
	}
	b, err := os.ReadFile(v.path("f"))
	fmt.Printf("written: %s\n", b)
	return errors.Join(err, fs.Unmount())
}
