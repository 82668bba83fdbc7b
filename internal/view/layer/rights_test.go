package layer

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// The user of these tests, and one more group of the user's.
const (
	me    = 1500
	group = 1700
)

// asMe runs do on a thread that has the rights of an ordinary user and no others.
func asMe(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and ends with the goroutine
		gid := int32(group)
		for _, call := range [][4]uintptr{
			{unix.SYS_SETGROUPS, 1, uintptr(unsafe.Pointer(&gid))},
			{unix.SYS_SETRESGID, me, me, me},
			{unix.SYS_SETRESUID, me, me, me},
		} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				t.Errorf("become the user: %v", errno)
				return
			}
		}
		do()
	}()
	<-done
}

type owned struct {
	uid, gid int
	mode     uint32
}

// newRightsBench makes a source and a stack of the user's.
func newRightsBench(t *testing.T, files map[string]string, as map[string]owned) *bench {
	t.Helper()
	testenv.Root(t)
	b := newBench(t, files, func(o *Options) { o.User = &User{UID: me} })
	b.close()
	b.Stack = nil
	root := filepath.Dir(b.source)
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	must(t, os.Chown(b.source, me, me))
	must(t, os.RemoveAll(b.dir))
	must(t, os.Chown(root, me, me))
	for name, o := range as {
		must(t, os.Chown(b.src(name), o.uid, o.gid))
		must(t, unix.Chmod(b.src(name), o.mode))
	}
	asMe(t, b.open)
	return b
}

func TestReadsTheUsersModeRefusesAreRefused(t *testing.T) {
	b := newRightsBench(t, map[string]string{
		"mine": "x", "unreadable": "x", "group": "x", "other": "x",
		"nosearch/file": "x", "nolist/file": "x", "hers": "x",
	}, map[string]owned{
		"mine": {me, me, 0o600}, "unreadable": {me, me, 0o044}, "group": {0, group, 0o040}, "hers": {0, group, 0o404},
		"other": {0, 0, 0o640}, "nosearch": {0, 0, 0o744}, "nolist": {0, 0, 0o711},
	})
	asMe(t, func() {
		for p, want := range map[vpath.Path]error{
			"/mine": nil, "/group": nil, "/unreadable": unix.EACCES, "/other": unix.EACCES, "/hers": unix.EACCES,
			"/nosearch/file": unix.EACCES, "/nolist/file": nil,
		} {
			if _, err := readView(b.Stack, p); !errors.Is(err, want) {
				t.Errorf("read %s: %v, want %v", p, err, want)
			}
			if _, err := b.CopyUp(p); !errors.Is(err, want) {
				t.Errorf("copy up %s: %v, want %v", p, err, want)
			}
		}
		if _, err := b.ReadDir("/nolist"); !errors.Is(err, unix.EACCES) {
			t.Errorf("list: %v, want EACCES", err)
		}
	})
}

func TestShownModesAreTheUsersRights(t *testing.T) {
	b := newRightsBench(t, map[string]string{
		"mine": "x", "grouped": "x", "shared": "x", "theirs": "x", "open": "x", "script": "x", "dir/f": "x", "closed/f": "x",
	}, map[string]owned{
		"mine": {me, 0, 0o460}, "grouped": {0, group, 0o064}, "shared": {0, group, 0o664}, "theirs": {0, 0, 0o644},
		"open": {0, 0, 0o666}, "script": {0, 0, 0o755}, "dir": {0, group, 0o2775}, "closed": {0, 0, 0o755},
	})
	asMe(t, func() {
		for p, want := range map[string]uint32{
			"/mine": 0o460, "/grouped": 0o664, "/shared": 0o664, "/theirs": 0o444,
			"/open": 0o666, "/script": 0o555, "/dir": 0o2775, "/closed": 0o555,
		} {
			if got := b.lookup(p).Mode &^ unix.S_IFMT; got != want {
				t.Errorf("%s shows %o, want %o", p, got, want)
			}
		}
		// A copy has the same rights as the original, and a directory of the delta those of
		// the source's.
		for p, want := range map[vpath.Path]uint32{"/grouped": 0o664, "/dir": 0o775, "/closed": 0o555} {
			i, err := b.CopyUp(p)
			if err != nil || i.Mode&^unix.S_IFMT != want || i.Origin != Delta {
				t.Errorf("the copy of %s shows %o (%v), want %o", p, i.Mode, err, want)
			}
		}
	})
}

func TestWhatTheUserMayNotDoIsRefused(t *testing.T) {
	b := newRightsBench(t, map[string]string{
		"mine": "x", "shared": "x", "theirs": "x", "dir/f": "x", "closed/f": "x", "closed/own": "x",
		"sticky/theirs": "x", "sticky/own": "x", "tree/inner/f": "x",
	}, map[string]owned{
		"mine": {me, me, 0o644}, "shared": {0, group, 0o664}, "dir": {0, group, 0o2775}, "dir/f": {0, 0, 0o600},
		"closed/own": {me, me, 0o644}, "sticky": {0, 0, 0o1777}, "sticky/own": {me, me, 0o644}, "tree": {me, me, 0o755},
	})
	now, mode := new(unix.NsecToTimespec(time.Now().UnixNano())), uint32(0o600)
	asMe(t, func() {
		for _, tt := range []struct {
			name string
			do   func() error
			want error
		}{
			{"write what the group may", func() error { return b.openToWrite("/shared") }, nil},
			{"write what others own", func() error { return b.openToWrite("/theirs") }, unix.EACCES},
			{"truncate what others own", func() error { return b.set("/theirs", SetAttr{Size: new(int64)}) }, unix.EACCES},
			{"chmod the own", func() error { return b.set("/mine", SetAttr{Mode: &mode, OwnerOnly: true}) }, nil},
			{"chmod what others own", func() error { return b.set("/closed/f", SetAttr{Mode: &mode, OwnerOnly: true}) }, unix.EPERM},
			{"chmod another's directory", func() error { return b.set("/dir", SetAttr{Mode: &mode, OwnerOnly: true}) }, unix.EPERM},
			{"set a time of what others own", func() error { return b.set("/dir", SetAttr{Mtime: now, OwnerOnly: true}) }, unix.EPERM},
			{"touch what others own", func() error { return b.set("/theirs", SetAttr{Mtime: now}) }, unix.EACCES},
			{"touch what may be written", func() error { return b.set("/dir", SetAttr{Mtime: now}) }, nil},
			{"make in a directory of the group", func() error { _, err := b.Mkdir("/dir/new", 0o755); return err }, nil},
			{"remove another's file there", func() error { _, err := b.Unlink("/dir/f", false); return err }, nil},
			{"chmod the directory, which is in the delta", func() error { return b.set("/dir", SetAttr{Mode: &mode, OwnerOnly: true}) }, unix.EPERM},
			{"make in another's directory", func() error { _, err := b.Mkdir("/closed/new", 0o755); return err }, unix.EACCES},
			{"remove the own file there", func() error { _, err := b.Unlink("/closed/own", false); return err }, unix.EACCES},
			{"write the own file there", func() error { return b.openToWrite("/closed/own") }, nil},
			{"make there, now that it is in the delta", func() error { _, err := b.Mkdir("/closed/new", 0o755); return err }, unix.EACCES},
			{"move out of it", func() error { return b.move("/closed/own", "/moved") }, unix.EACCES},
			{"move into it", func() error { return b.move("/mine", "/closed/mine") }, unix.EACCES},
			{"remove the own from a sticky directory", func() error { _, err := b.Unlink("/sticky/own", false); return err }, nil},
			{"remove what others own from it", func() error { _, err := b.Unlink("/sticky/theirs", false); return err }, unix.EPERM},
			{"replace it", func() error { return b.move("/mine", "/sticky/theirs") }, unix.EPERM},
			{"link what may not be written", func() error { _, err := b.Link("/theirs", "/link"); return err }, unix.EPERM},
			{"move a tree that another has filled", func() error { return b.move("/tree", "/other") }, unix.EXDEV},
			{"move what others own within the own directory", func() error { return b.move("/theirs", "/hers") }, nil},
		} {
			if err := tt.do(); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
		}
	})
}

func (b *bench) openToWrite(p vpath.Path) error {
	f, _, err := b.Open(p, true)
	if err == nil {
		f.Close()
	}
	return err
}

func (b *bench) set(p vpath.Path, a SetAttr) error {
	_, err := b.SetAttr(p, a)
	return err
}

func (b *bench) move(old, p vpath.Path) error {
	_, err := b.Stack.Rename(old, p, RenameOptions{})
	return err
}
