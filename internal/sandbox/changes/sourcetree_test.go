package changes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// openTree makes a source with the file f in it.
func openTree(t *testing.T, plain bool) *SourceTree {
	t.Helper()
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	tree := &SourceTree{Root: root, Owner: "sb_0123456789abcdef", plain: plain}
	put(t, tree, "f", "old")
	return tree
}

func put(t *testing.T, tree *SourceTree, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(tree.Root.Name(), name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// content describes what stands at name.
func content(t *testing.T, tree *SourceTree, name string) string {
	t.Helper()
	path := filepath.Join(tree.Root.Name(), name)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "nothing"
	case err != nil:
		t.Fatal(err)
	case info.IsDir():
		return "directory"
	case info.Mode()&os.ModeSymlink != 0:
		target, _ := os.Readlink(path)
		return "-> " + target
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func delta(t *testing.T, text string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "delta")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Each change is tried with what was checked still in its place, and after
// somebody else was quicker.
func TestAChangeFindsWhatWasChecked(t *testing.T) {
	replace := func(t *testing.T, e Entry, before *unix.Stat_t) error {
		file, err := e.Stage(delta(t, "new"), Look{Mode: 0o644, Before: before})
		if err != nil {
			return err
		}
		defer file.Close()
		return e.Place(file, before)
	}
	changes := []struct {
		name string
		do   func(t *testing.T, e Entry, before *unix.Stat_t) error
		want string
	}{
		{"a file", replace, "new"},
		{"a link", func(_ *testing.T, e Entry, before *unix.Stat_t) error { return e.MakeLink("to", before) }, "-> to"},
		{"a directory", func(_ *testing.T, e Entry, before *unix.Stat_t) error { return e.MakeDir(Look{Mode: 0o755}, before) }, "directory"},
	}
	for _, c := range changes {
		for _, plain := range []bool{false, true} {
			if plain && c.name == "a directory" {
				continue // put in the place of a file it needs an exchange
			}
			t.Run(c.name+map[bool]string{true: " the plain way"}[plain], func(t *testing.T) {
				tree := openTree(t, plain)
				try := func(name, want string, wantErr error, do func(e Entry) error) {
					t.Helper()
					if err := tree.At(vpath.Path("/"+name), do); !errors.Is(err, wantErr) {
						t.Errorf("at %s: %v, want %v", name, err, wantErr)
					}
					if got := content(t, tree, name); got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
				var before unix.Stat_t
				if err := unix.Lstat(filepath.Join(tree.Root.Name(), "f"), &before); err != nil {
					t.Fatal(err)
				}
				try("n", c.want, nil, func(e Entry) error { return c.do(t, e, nil) })
				put(t, tree, "o", "somebody's")
				try("o", "somebody's", ErrMoved, func(e Entry) error { return c.do(t, e, nil) })
				try("o", "somebody's", ErrMoved, func(e Entry) error { return c.do(t, e, &before) })
				try("f", c.want, nil, func(e Entry) error { return c.do(t, e, &before) })
				if names, _ := os.ReadDir(tree.Root.Name()); len(names) != 3 {
					t.Errorf("left behind: %v", names)
				}
			})
		}
	}
}

func TestRemoveFindsWhatWasChecked(t *testing.T) {
	for _, plain := range []bool{false, true} {
		tree := openTree(t, plain)
		put(t, tree, "o", "somebody's")
		var before unix.Stat_t
		if err := unix.Lstat(filepath.Join(tree.Root.Name(), "f"), &before); err != nil {
			t.Fatal(err)
		}
		remove := func(e Entry) error { return e.Remove(&before) }
		if err := tree.At("/o", remove); !errors.Is(err, ErrMoved) || content(t, tree, "o") != "somebody's" {
			t.Errorf("plain %v: removing another file: %v, it is %q", plain, err, content(t, tree, "o"))
		}
		if err := tree.At("/f", remove); err != nil || content(t, tree, "f") != "nothing" {
			t.Errorf("plain %v: removing the file: %v, it is %q", plain, err, content(t, tree, "f"))
		}
		if err := tree.At("/f", remove); err == nil {
			t.Errorf("plain %v: removing it again succeeds", plain)
		}
	}
}

func TestRecoverDeletesNobodysWork(t *testing.T) {
	tests := []struct {
		name, there, temp string
		want, wantTemp    string
		moved             bool
	}{
		{"nothing was left", "old", "", "old", "nothing", false},
		{"the new version did not get its place", "old", "new", "old", "nothing", false},
		{"the old version lost its place", "new", "old", "new", "nothing", false},
		{"the file was on its way out", "", "old", "nothing", "nothing", false},
		{"somebody's version was taken away with the name free", "", "mine", "mine", "nothing", false},
		{"somebody's version was exchanged", "new", "mine", "new", "mine", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := openTree(t, false)
			dir, temp := tree.Root.Name(), tree.tempName("/f")
			var before unix.Stat_t
			if err := unix.Lstat(filepath.Join(dir, "f"), &before); err != nil {
				t.Fatal(err)
			}
			if tt.there != "old" {
				if err := os.Rename(filepath.Join(dir, "f"), filepath.Join(dir, temp)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.there != "" && tt.there != "old" {
				put(t, tree, "f", tt.there)
			}
			if tt.temp != "" && tt.temp != "old" {
				_ = os.Remove(filepath.Join(dir, temp))
				put(t, tree, temp, tt.temp)
			}
			isBefore := func(st *unix.Stat_t) bool { return IsVersion(&before, st) }
			err := tree.At("/f", func(e Entry) error { return e.recover(func(_ string, st *unix.Stat_t) bool { return isBefore(st) }) })
			if errors.Is(err, ErrMoved) != tt.moved {
				t.Errorf("recover = %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), temp) {
				t.Errorf("recover = %v does not name %s", err, temp)
			}
			if got, gotTemp := content(t, tree, "f"), content(t, tree, temp); got != tt.want || gotTemp != tt.wantTemp {
				t.Errorf("f is %q and what was left %q, want %q and %q", got, gotTemp, tt.want, tt.wantTemp)
			}
		})
	}
}

func TestPathsOfAnyLength(t *testing.T) {
	tree := openTree(t, false)
	p := vpath.Root
	at, err := os.OpenRoot(tree.Root.Name())
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		name := strings.Repeat("d", 200)
		p = p.Child(name)
		if err := at.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot(name)
		if err != nil {
			t.Fatal(err)
		}
		at.Close()
		at = next
	}
	defer at.Close()
	if err := tree.At(p.Child("l"), func(e Entry) error { return e.MakeLink("to", nil) }); err != nil {
		t.Fatal(err)
	}
	if target, err := at.Readlink("l"); err != nil || target != "to" {
		t.Errorf("link = %q, %v", target, err)
	}
}

func TestNothingIsReachedThroughALink(t *testing.T) {
	tree := openTree(t, false)
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(tree.Root.Name(), "d")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []vpath.Path{"/d/n", "/d/e/n"} {
		if err := tree.At(p, func(e Entry) error { return e.MakeLink("to", nil) }); err == nil {
			t.Errorf("%s was reached", p)
		}
	}
	if names, _ := os.ReadDir(outside); len(names) != 0 {
		t.Errorf("made outside: %v", names)
	}
}

func TestCopyContentKeepsHoles(t *testing.T) {
	dir := t.TempDir()
	src, err := os.Create(filepath.Join(dir, "src"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	const size = 64 << 20
	if _, err := src.WriteAt([]byte("middle"), size/2); err != nil {
		t.Fatal(err)
	}
	if err := src.Truncate(size); err != nil {
		t.Fatal(err)
	}
	dst, err := os.Create(filepath.Join(dir, "dst"))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if err := copyContent(dst, src); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dst.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 6)
	if _, err := dst.ReadAt(buf, size/2); err != nil || string(buf) != "middle" {
		t.Errorf("content = %q, %v", buf, err)
	}
	if st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("the copy has %d bytes in %d blocks", st.Size, st.Blocks)
	}
}
