package layer

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestNamesMadeInsideCannotActAsWhiteouts(t *testing.T) {
	b := newBench(t, map[string]string{"file": "kept", "dir/below": "kept"})
	names := []string{".wh.file", ".wh..wh..opq", ".wh..wh.=.wh.x", fmt.Sprintf(".wh..wh.#%x-", sha256.Sum256([]byte("file"))), ".wh."}
	for _, dir := range []vpath.Path{"/", "/dir"} {
		for _, name := range names {
			b.write(string(dir.Child(name)), name)
		}
	}
	b.reopen()
	if got := b.read("/file") + b.read("/dir/below"); got != "keptkept" {
		t.Errorf("files of the source read %q", got)
	}
	want := sorted(append(slices.Clone(names), "below"))
	if got := b.names("/dir"); !slices.Equal(got, want) {
		t.Errorf("names = %q, want %q", got, want)
	}
	for _, name := range names {
		if got := b.read("/dir/" + name); got != name {
			t.Errorf("%q reads %q", name, got)
		}
		b.unlink("/dir/" + name)
	}
	if got := b.names("/dir"); !slices.Equal(got, []string{"below"}) {
		t.Errorf("names after unlinking = %q", got)
	}
	left, err := os.ReadDir(b.top("dir"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("the delta still holds %v", left)
	}
}

func TestNamesOfTheSourceThatLookLikeWhiteoutsAreFiles(t *testing.T) {
	long := strings.Repeat("s", 255)
	b := newBench(t, map[string]string{".wh.file": "a", "file": "b", ".wh..wh..opq": "c", long: "d"})
	want := sorted([]string{".wh.file", "file", ".wh..wh..opq", long})
	if got := b.names("/"); !slices.Equal(got, want) {
		t.Errorf("names = %q, want %q", got, want)
	}
	for _, name := range want {
		b.write("/"+name, "new "+name)
		b.rename("/"+name, "/moved")
		b.rename("/moved", "/"+name)
		if got := b.read("/" + name); got != "new "+name {
			t.Errorf("%q reads %q", name, got)
		}
		b.unlink("/" + name)
	}
	if got := b.names("/"); len(got) > 0 {
		t.Errorf("names after unlinking = %q", got)
	}
	if got := b.changes(); len(got) != len(want) {
		t.Errorf("changes = %q", got)
	}
}

func TestTheDeltaIsAnImageLayer(t *testing.T) {
	b := newBench(t, map[string]string{"gone": "", "dir/a": "", "again/old": ""})
	b.unlink("/gone")
	b.write("/dir/a", "changed")
	b.removeAll("/again")
	b.mkdir("/again")
	b.write("/again/new", "made")
	var got []string
	for _, n := range plainTree(t, b.top("")) {
		got = append(got, n.Path)
	}
	want := []string{"/", "/.wh.gone", "/again", "/again/.wh..wh..opq", "/again/new", "/dir", "/dir/a"}
	if !slices.Equal(got, want) {
		t.Errorf("the delta holds %q, want %q", got, want)
	}
}

func TestModesAreExactAndNeverSetUID(t *testing.T) {
	for _, umask := range []int{0, 0o077} {
		old := unix.Umask(umask)
		b := newBench(t, map[string]string{"file": "", "dir/x": ""})
		unix.Umask(old)
		must(t, os.Chmod(b.src("file"), 0o755|os.ModeSetuid|os.ModeSetgid))
		must(t, os.Chmod(b.src("dir"), 0o775|os.ModeSetgid))
		unix.Umask(umask)
		_, _, err := b.Create("/dir/created", 0o6755)
		must(t, err)
		_, err = b.Mkdir("/dir/made", 0o7775)
		must(t, err)
		_, err = b.Mknod("/dir/node", unix.S_IFREG|0o4711)
		must(t, err)
		_, err = b.CopyUp("/file")
		must(t, err)
		_, err = b.SetAttr("/dir/node", SetAttr{Mode: new(uint32(0o6711))})
		must(t, err)
		unix.Umask(old)
		for p, want := range map[string]uint32{
			"/dir/created": 0o755, "/dir/made": 0o1775, "/dir/node": 0o711, "/file": 0o755, "/dir": 0o775,
		} {
			if got := b.lookup(p).Mode & 0o7777; got != want {
				t.Errorf("umask %03o: %s has mode %04o, want %04o", umask, p, got, want)
			}
		}
	}
}

func TestOurOwnDirectoriesArePrivate(t *testing.T) {
	b := newBench(t, map[string]string{"a": ""})
	b.write("/a", "x")
	must(t, b.Freeze())
	for _, name := range []string{"", "top", "work", "orphan", "../frozen", "base"} {
		i, err := os.Stat(b.dir + "/" + name)
		must(t, err)
		if i.Mode().Perm() != 0o700 && name != "top" {
			t.Errorf("%q has mode %v", name, i.Mode())
		}
	}
}

func TestHardLinksMadeInsideAreOneFile(t *testing.T) {
	b := newBench(t, map[string]string{"a": "x"})
	number := b.lookup("/a").Ino
	i, err := b.Link("/a", "/b")
	must(t, err)
	if i.Nlink != 2 || i.Ino != number {
		t.Errorf("the link shows %+v, want 2 names of %d", i, number)
	}
	b.write("/b", "both")
	must(t, b.Freeze())
	b.write("/a", "both again") // copies up one name of two
	b.reopen()
	if got := b.read("/b"); got != "both again" {
		t.Errorf("the other name reads %q after a freeze", got)
	}
	if a, bb := b.lookup("/a"), b.lookup("/b"); a.Ino != number || bb.Ino != number || a.Nlink != 2 || a.ID != bb.ID {
		t.Errorf("after a freeze: %+v and %+v", a, bb)
	}
	_, err = b.Mkdir("/dir", 0o755)
	must(t, err)
	_, err = b.Link("/dir", "/dir2")
	wantErr(t, "link a directory", err, unix.EPERM)
}
