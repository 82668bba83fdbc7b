package layer

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFreezeLeavesTheViewAsItIs(t *testing.T) {
	b := newBench(t, map[string]string{"a": "source", "b": "source", "dir/c": "source"})
	b.write("/a", "first")
	b.unlink("/b")
	b.removeAll("/dir")
	_, err := b.SetAttr("/", SetAttr{Mode: new(uint32(0o701))})
	must(t, err)
	before := b.changes()
	f, _, err := b.Open("/a", true)
	must(t, err)
	defer f.Close()
	must(t, b.Freeze())
	_, err = f.WriteAt([]byte("x"), 0)
	wantErr(t, "write to a file that was frozen", err, unix.ESTALE)
	if got := b.changes(); !slices.Equal(got, before) {
		t.Errorf("changes became %q, were %q", got, before)
	}

	number := b.lookup("/a").Ino
	b.write("/a", "second")
	b.write("/b", "made again")
	b.mkdir("/dir")
	b.reopen()
	if i := b.lookup("/"); i.Mode != unix.S_IFDIR|0o701 {
		t.Errorf("the root has mode %o", i.Mode)
	}
	if got := b.read("/a") + b.read("/b"); got != "secondmade again" || b.lookup("/a").Ino != number {
		t.Errorf("above the frozen layer: %q, number %d of %d", got, b.lookup("/a").Ino, number)
	}
	if got := b.names("/dir"); len(got) != 0 {
		t.Errorf("the directory made again shows %q", got)
	}
	if got := b.baseText("/b"); got != "source" {
		t.Errorf("the content that a frozen whiteout hides, and a new file replaces, is kept as %q", got)
	}
	frozen, err := os.ReadFile(b.frozen("a"))
	if err != nil || string(frozen) != "first" {
		t.Errorf("the frozen file reads %q, %v", frozen, err)
	}
	if changes, err := b.Changes(); err != nil || changes[0].Path != "/" || changes[1].Base == nil || changes[1].Base.SHA256 == nil {
		t.Errorf("the base of a file changed twice: %+v, %v", changes, err)
	}
}
