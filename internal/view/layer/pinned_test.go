package layer

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestManyRemovedFilesAreCopiedInsteadOfHeld(t *testing.T) {
	files := map[string]string{}
	for i := range 10 {
		files[fmt.Sprintf("f%d", i)] = fmt.Sprint(i)
		files[fmt.Sprintf("replaced%d", i)] = fmt.Sprint(i)
	}
	b := newBench(t, files)
	b.maxPins = 3
	orphans := map[string]*Orphan{}
	for i := range 10 {
		before := b.lookup(fmt.Sprintf("/f%d", i))
		o, err := b.Unlink(vpath.Path(fmt.Sprintf("/f%d", i)), true)
		must(t, err)
		if after, err := o.Info(); err != nil || after.Ino != before.Ino || after.Size != before.Size || after.Nlink != 0 {
			t.Errorf("orphan %d shows %+v, %v, want it as it was: %+v", i, after, err, before)
		}
		orphans[fmt.Sprintf("f%d", i)] = o
		b.write("/new", "new")
		o, err = b.Rename("/new", vpath.Path(fmt.Sprintf("/replaced%d", i)), RenameOptions{KeepReplaced: true})
		must(t, err)
		orphans[fmt.Sprintf("replaced%d", i)] = o
	}
	if n := b.pins.Load(); n != 3 {
		t.Errorf("%d files are held, want 3", n)
	}
	for name, o := range orphans {
		f, i, err := o.Open(false)
		must(t, err)
		if got, err := readFile(f, i.Size); err != nil || got != files[name] {
			t.Errorf("%s reads %q, %v, want %q", name, got, err, files[name])
		}
		f.Close()
		o.Forget()
	}
	if n := b.pins.Load(); n != 0 {
		t.Errorf("%d files are held when all are forgotten", n)
	}
	for name, want := range files {
		if content, err := os.ReadFile(b.src(name)); err != nil || string(content) != want {
			t.Errorf("the source's %s: %q, %v", name, content, err)
		}
	}
}

func TestALargeFileIsNotRemovedWhenManyAreHeld(t *testing.T) {
	b := newBench(t, map[string]string{"held": "h", "large": "", "other": "o"})
	b.maxPins = 1
	must(t, os.Truncate(b.src("large"), maxPinnedCopy+1))
	held, err := b.Unlink("/held", true)
	must(t, err)
	_, err = b.Unlink("/large", true)
	wantErr(t, "unlink of a large file in use", err, unix.ENFILE)
	b.write("/new", "new")
	_, err = b.Rename("/new", "/large", RenameOptions{KeepReplaced: true})
	wantErr(t, "rename over a large file in use", err, unix.ENFILE)
	if got := b.lookup("/large").Size; got != maxPinnedCopy+1 {
		t.Errorf("what was not removed has %d bytes", got)
	}
	if got := b.read("/new"); got != "new" {
		t.Errorf("what was not renamed reads %q", got)
	}
	b.unlink("/other") // not in use: nothing to hold
	held.Forget()
	o, err := b.Unlink("/large", true)
	must(t, err)
	o.Forget()
}

func TestWhatIsCopiedInsteadOfHeldIsCharged(t *testing.T) {
	b := newBench(t, map[string]string{"a": "a", "b": "b"}, func(o *Options) { o.Quota.Inodes = 0; o.Quota.Bytes = 1 })
	b.maxPins = 0
	_, err := b.Unlink("/a", true)
	wantErr(t, "unlink without room for the copy", err, unix.EDQUOT)
	if got := b.read("/a"); got != "a" {
		t.Errorf("what was not removed reads %q", got)
	}
}
