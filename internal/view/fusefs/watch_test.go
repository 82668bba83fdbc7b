package fusefs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// change changes the source as its owner would.
func (v *view) change(do func(source string) error) {
	v.t.Helper()
	if err := do(v.source); err != nil {
		v.t.Fatal(err)
	}
}

func TestChangesOfTheSourceShow(t *testing.T) {
	overwrite := func(s string) error { return os.WriteFile(s+"/d/f", []byte("changed content"), 0o644) }
	replace := func(s string) error {
		if err := os.WriteFile(s+"/d/tmp", []byte("changed content"), 0o644); err != nil {
			return err
		}
		return os.Rename(s+"/d/tmp", s+"/d/f")
	}
	tests := []struct {
		name string
		do   func(source string) error
		want func(v *view) bool
	}{
		{"a file written in place", overwrite, func(v *view) bool { return v.holds("d/f", "changed content") }},
		{"a file replaced by rename", replace, func(v *view) bool { return v.holds("d/f", "changed content") }},
		{"the size of a file written in place", overwrite, func(v *view) bool { return v.stat("d/f").Size == 15 }},
		{"the number of a file replaced by rename", replace, func(v *view) bool {
			var st unix.Stat_t
			return unix.Lstat(v.source+"/d/f", &st) == nil && v.stat("d/f").Ino == st.Ino
		}},
		{
			"a mode", func(s string) error { return os.Chmod(s+"/d/f", 0o400) },
			func(v *view) bool { return v.stat("d/f").Mode&0o777 == 0o400 },
		},
		{
			"a new file", func(s string) error { return os.WriteFile(s+"/d/new", []byte("n"), 0o644) },
			func(v *view) bool {
				_, err := os.Stat(v.path("d/new"))
				return err == nil && v.names("d") == "f l new sub"
			},
		},
		{
			"a removed file", func(s string) error { return os.Remove(s + "/d/f") },
			func(v *view) bool {
				_, err := os.Stat(v.path("d/f"))
				return os.IsNotExist(err) && v.names("d") == "l sub"
			},
		},
		{"another target of a link", func(s string) error {
			if err := os.Remove(s + "/d/l"); err != nil {
				return err
			}
			return os.Symlink("elsewhere", s+"/d/l")
		}, func(v *view) bool { target, _ := os.Readlink(v.path("d/l")); return target == "elsewhere" }},
		{"a moved directory", func(s string) error { return os.Rename(s+"/d/sub", s+"/d/moved") }, func(v *view) bool {
			_, err := os.Stat(v.path("d/sub/deep"))
			return os.IsNotExist(err) && v.names("d") == "f l moved" && v.holds("d/moved/deep", "deep")
		}},
		{"a directory in another's place", func(s string) error {
			if err := os.Rename(s+"/d/sub", s+"/d/moved"); err != nil {
				return err
			}
			tree{"sub/other": "other"}.make(t, s+"/d")
			return nil
		}, func(v *view) bool {
			_, err := os.Stat(v.path("d/sub/deep"))
			return os.IsNotExist(err) && v.names("d/sub") == "other" && v.holds("d/sub/other", "other")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := mount(t, tree{"d/f": "content", "d/l": "-> f", "d/sub/deep": "deep"}, "**=write")
			// The kernel caches everything, and that "new" is absent.
			for range 2 {
				v.read("d/f")
				v.read("d/sub/deep")
				v.names("d")
				v.names("d/sub")
				v.stat("d/f")
				if _, err := os.Stat(v.path("d/new")); !os.IsNotExist(err) {
					t.Fatal(err)
				}
				if _, err := os.Readlink(v.path("d/l")); err != nil {
					t.Fatal(err)
				}
			}
			v.change(tt.do)
			testenv.Eventually(t, "the view shows it", func() bool { return tt.want(v) })
		})
	}
}

// holds reports whether a file is readable and has the wanted content. Until the view has
// handled the event of a replacement, a read may return ESTALE.
func (v *view) holds(rel, want string) bool {
	got, err := os.ReadFile(v.path(rel))
	return err == nil && string(got) == want
}

// TestWhatTheSandboxChangedHidesTheSource: the source's later changes of it do
// not show.
func TestWhatTheSandboxChangedHidesTheSource(t *testing.T) {
	v := mount(t, tree{"d/f": "then", "d/g": "then"}, "**=write")
	v.write("d/f", "mine")
	if err := os.Remove(v.path("d/g")); err != nil {
		t.Fatal(err)
	}
	v.change(func(s string) error {
		tree{"d/f": "theirs", "d/g": "theirs", "d/marker": ""}.make(t, s)
		return nil
	})
	testenv.Eventually(t, "the marker shows", func() bool { return v.names("d") == "f marker" })
	if got := v.read("d/f"); got != "mine" {
		t.Errorf("read %q", got)
	}
}

// TestGetcwdSurvivesInvalidation: a working directory that still exists keeps
// its path when what is known of it and above it is dropped.
func TestGetcwdSurvivesInvalidation(t *testing.T) {
	v := mount(t, tree{"d/sub/f": "1"}, "**=write")
	script := "cd d/sub; ls >/dev/null; mkdir ../../ready; while ! [ -e ../new ]; do sleep 0.01; done; /bin/pwd; ls"
	done := make(chan string)
	go func() { done <- v.guest(script) }()
	testenv.Eventually(t, "somebody is in the directory", func() bool { _, err := v.layer.Lookup("/ready"); return err == nil })
	v.change(func(s string) error {
		tree{"d/sub/more": ""}.make(t, s)
		return nil
	})
	v.Invalidate(vpath.Root)
	v.SetPolicy(compile(t, "**=read"))
	v.change(func(s string) error {
		tree{"d/new": ""}.make(t, s)
		return nil
	})
	if got, want := <-done, v.path("d/sub")+"\nf\nmore"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// TestAnOpenFileThatWasReplaced: a reader gets the old content while the descriptor is
// open, then ESTALE, and never the new content.
func TestAnOpenFileThatWasReplaced(t *testing.T) {
	for _, keep := range []bool{true, false} {
		v := mountSource(t, t.TempDir(), limitDescriptors(1), "**=read")
		big := strings.Repeat("old ", 1<<18)
		tree{"f": big, "other": strings.Repeat("x", 1<<20)}.make(t, v.source)
		f, err := os.Open(v.path("f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := make([]byte, 4)
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if !keep {
			v.read("other") // uses the only descriptor
		}
		v.change(func(s string) error {
			if err := os.WriteFile(s+"/tmp", []byte(strings.Repeat("new ", 1<<18)), 0o644); err != nil {
				return err
			}
			return os.Rename(s+"/tmp", s+"/f")
		})
		testenv.Eventually(t, "the name shows the new file", func() bool {
			var old unix.Stat_t
			return unix.Fstat(int(f.Fd()), &old) != nil || v.stat("f").Ino != old.Ino
		})
		_, err = f.ReadAt(b, 1<<19)
		switch {
		case err == nil && string(b) != "old ":
			t.Errorf("read %q through the old descriptor", b)
		case err != nil && !strings.Contains(err.Error(), "stale"):
			t.Errorf("read: %v, want the old content or ESTALE", err)
		case !keep && err == nil:
			t.Error("read what could not be there any more")
		}
	}
}

// TestTwoNamesOfASourceFileAreTwoNodes: the pages of the stricter name must not be readable
// through the other, and writes to one must not show in the other.
func TestTwoNamesOfASourceFileAreTwoNodes(t *testing.T) {
	source := t.TempDir()
	tree{"open": "shared"}.make(t, source)
	if err := os.Link(source+"/open", source+"/closed"); err != nil {
		t.Fatal(err)
	}
	v := mountSource(t, source, limitDescriptors(0), "/open=write", "/closed=view")
	if a, b := v.stat("open"), v.stat("closed"); a.Ino == b.Ino || a.Nlink != 1 || b.Nlink != 1 {
		t.Errorf("numbers %d and %d, nlink %d and %d", a.Ino, b.Ino, a.Nlink, b.Nlink)
	}
	if got := v.guest("cat open closed"); got != "sharedcat: closed: Permission denied" {
		t.Errorf("printed %q", got)
	}
	v.guest("echo more >>open")
	if b, err := os.ReadFile(source + "/closed"); err != nil || string(b) != "shared" {
		t.Errorf("the source holds %q, %v", b, err)
	}
}

// TestSeveralNamedFilesAreBelievedBriefly: a file with several names in the source may be
// changed through another name.
func TestSeveralNamedFilesAreBelievedBriefly(t *testing.T) {
	source, other := t.TempDir(), t.TempDir()
	tree{"f": "one"}.make(t, source)
	if err := os.Link(source+"/f", other+"/f"); err != nil {
		t.Skip("the temporary directories are on two file systems")
	}
	v := mountSource(t, source, limitDescriptors(0), "**=read")
	if got := v.read("f"); got != "one" {
		t.Fatalf("read %q", got)
	}
	if err := os.WriteFile(other+"/f", []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	testenv.Eventually(t, "the change shows", func() bool { return v.read("f") == "changed" })
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestInvalidateAfterDrop(t *testing.T) {
	v := mount(t, tree{"d/f": "source", "d/gone": "back", "e/x": "1"}, "**=write")
	v.write("d/f", "delta")
	v.write("d/new", "delta")
	if err := os.Remove(v.path("d/gone")); err != nil {
		t.Fatal(err)
	}
	if got := v.read("d/f") + v.names("d"); got != "deltaf new" {
		t.Fatalf("before: %q", got)
	}
	paths := []vpath.Path{"/d/f", "/d/new", "/d/gone"}
	if err := v.layer.Drop(paths...); err != nil {
		t.Fatal(err)
	}
	v.Invalidate(paths...)
	if got := v.read("d/f") + v.names("d") + v.read("d/gone"); got != "sourcef goneback" {
		t.Errorf("after: %q", got)
	}
	v.write("d/f", "delta again")
	if got := v.read("d/f"); got != "delta again" {
		t.Errorf("written again: %q", got)
	}
}

// TestInvalidatingManyPathsIsNoProduct: the cost grows with the number of paths plus the
// number of nodes, not with their product.
func TestInvalidatingManyPathsIsNoProduct(t *testing.T) {
	files := tree{}
	var paths []vpath.Path
	for n := range 4000 {
		name := fmt.Sprintf("d%d/f%d", n%10, n)
		files[name] = "1"
		paths = append(paths, vpath.Path("/"+name))
	}
	paths = append(paths, "/d0", "/d1", "/absent", "/absent/x")
	v := mount(t, files, "**=write")
	if got := v.guest("find . -type f | wc -l"); got != "4000" {
		t.Fatal(got)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v.Invalidate(paths...)
	runtime.ReadMemStats(&after)
	const each = 8 << 10 // bytes; a list of all nodes for each path takes several times as much
	if got := (after.TotalAlloc - before.TotalAlloc) / uint64(len(paths)); got > each {
		t.Errorf("it took %d bytes for each of %d paths among as many, want no more than %d", got, len(paths), each)
	}
}

func TestFreezingUnderAWriter(t *testing.T) {
	v := mount(t, tree{"f": "source"}, "**=write")
	f, err := os.OpenFile(v.path("f"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, want := range []string{"0ource", "01urce", "012rce"} {
		if _, err := f.WriteAt([]byte{byte('0' + i)}, int64(i)); err != nil {
			t.Fatal(err)
		}
		if got := v.read("f"); got != want {
			t.Errorf("read %q, want %q", got, want)
		}
		if _, err := v.layer.Freeze(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSourceThatCannotBeReadInParts(t *testing.T) {
	v := mount(t, tree{"ok": "1", "deep/f": "2"}, "**=read")
	if err := os.Chmod(filepath.Join(v.source, "deep"), 0); err != nil {
		t.Fatal(err)
	}
	if got := v.guest("cat ok; ls deep"); !strings.HasPrefix(got, "1") || !strings.Contains(got, "Permission denied") {
		t.Errorf("printed %q", got)
	}
}

// TestATreeThatGoesAndComesAgainShows removes many watched directories and makes others
// with the same names, which are then watched.
func TestATreeThatGoesAndComesAgainShows(t *testing.T) {
	files := tree{}
	for i := range 300 {
		files[fmt.Sprintf("t/d%d/sub/f", i)] = "old"
	}
	v := mount(t, files, "**=write")
	for i := range 300 {
		v.names(fmt.Sprintf("t/d%d/sub", i))
	}
	v.change(func(s string) error {
		if err := os.RemoveAll(s + "/t"); err != nil {
			return err
		}
		tree{"t/d7/sub/new": "new"}.make(t, s)
		return nil
	})
	testenv.Eventually(t, "the new tree shows", func() bool {
		_, err := os.Stat(v.path("t/d8"))
		return os.IsNotExist(err) && v.holds("t/d7/sub/new", "new") && v.names("t/d7/sub") == "new"
	})
	v.change(func(s string) error { return os.WriteFile(s+"/t/d7/sub/later", nil, 0o644) })
	testenv.Eventually(t, "what came later shows", func() bool { return v.names("t/d7/sub") == "later new" })
}

// TestADirectoryWhoseWatchEndedIsLookedAtAgain: what was not in a directory while its
// watch was that of one removed before shows once it is there.
func TestADirectoryWhoseWatchEndedIsLookedAtAgain(t *testing.T) {
	v := mount(t, tree{"d/sub/f": "1"}, "**=write")
	if got := v.guest("cat d/sub/f; ls d/sub; cat d/sub/later"); !strings.Contains(got, "No such file") {
		t.Fatal(got)
	}
	if err := v.EndWatch("/d/sub"); err != nil {
		t.Fatal(err)
	}
	v.change(func(s string) error { return os.WriteFile(s+"/d/sub/later", []byte("2"), 0o644) })
	testenv.Eventually(t, "the file shows", func() bool { return v.holds("d/sub/later", "2") && v.names("d/sub") == "f later" })
}
