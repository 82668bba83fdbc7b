package layer

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestMountPoints(t *testing.T) {
	b := newBench(t, map[string]string{"there/file": "x", "dir/file": "y"}, func(o *Options) {
		o.MountPoints = []vpath.Path{"/there", "/dir/absent", "/made/absent"}
	})
	i := b.lookup("/dir/absent")
	if !i.Mounted || i.Mode != unix.S_IFDIR|0o555 {
		t.Errorf("an absent mount point shows as %+v", i)
	}
	if got := b.lookup("/there"); got.Mounted || got.Origin != Source {
		t.Errorf("a mount point of the source shows as %+v", got)
	}
	_, err := b.Mkdir("/made", 0o755)
	must(t, err)
	for dir, want := range map[string]int{"/dir": 2, "/dir/absent": 0, "/made": 1, "/made/absent": 0, "/": 3} {
		if got := b.names(dir); len(got) != want {
			t.Errorf("%s lists %q, want %d names", dir, got, want)
		}
	}
	_, err = b.Mkdir("/made/absent", 0o755)
	wantErr(t, "mkdir of a mount point", err, unix.EEXIST)
	_, err = b.Mkdir("/made/absent/x", 0o755)
	wantErr(t, "mkdir in a mount point", err, unix.EROFS)
	for _, p := range []vpath.Path{"/dir/absent", "/there", "/made/absent"} {
		wantErr(t, "rmdir of "+string(p), b.Rmdir(p, func(string) bool { return false }), unix.EBUSY)
	}
	for _, p := range []vpath.Path{"/dir", "/dir/absent", "/there", "/made"} {
		_, err := b.Rename(p, "/moved", RenameOptions{})
		wantErr(t, "rename of "+string(p), err, unix.EBUSY)
		_, err = b.Rename("/dir/file", p, RenameOptions{})
		wantErr(t, "rename onto "+string(p), err, unix.EBUSY)
	}
	must(t, os.RemoveAll(b.src("there")))
	b.Invalidate("/there")
	if i := b.lookup("/there"); !i.Mounted {
		t.Errorf("a mount point that was removed shows as %+v", i)
	}
	changes, err := b.Changes()
	must(t, err)
	if len(changes) != 1 || changes[0].Path != "/made" {
		t.Errorf("changes: %+v", changes)
	}
}

func TestBusyPathsStay(t *testing.T) {
	b := newBench(t, map[string]string{"dir/file": "x", "dir/sub/x": "", "other": "y", "empty/": ""})
	b.SetBusy([]vpath.Path{"/dir/file", "/dir/sub", "/empty", "/absent"})
	_, err := b.Unlink("/dir/file", false)
	wantErr(t, "unlink", err, unix.EBUSY)
	wantErr(t, "rmdir", b.Rmdir("/empty", func(string) bool { return false }), unix.EBUSY)
	for _, p := range []vpath.Path{"/dir", "/dir/file", "/dir/sub", "/empty"} {
		_, err = b.Rename(p, "/moved", RenameOptions{})
		wantErr(t, "rename of "+string(p), err, unix.EBUSY)
		_, err = b.Rename("/other", p, RenameOptions{Exchange: true})
		wantErr(t, "exchange with "+string(p), err, unix.EBUSY)
	}
	_, err = b.Rename("/other", "/dir/file", RenameOptions{})
	wantErr(t, "rename onto a busy file", err, unix.EBUSY)
	_, err = b.Unlink("/dir/sub/x", false)
	must(t, err) // below is free
	b.SetBusy(nil)
	_, err = b.Rename("/other", "/dir/file", RenameOptions{})
	must(t, err)
}
