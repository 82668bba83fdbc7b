package fusefs_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestRenamingADirectory(t *testing.T) {
	tests := []struct {
		name  string
		rules []string
		want  error
		after string // what `find` prints then
	}{
		{"moves in place if all of it is write", []string{"**=write"}, nil, "e e/hidden e/sub e/sub/f e/x"},
		{"leaves hidden entries where they are", []string{"**=write", "**/hidden=none"}, nil, "e e/sub e/sub/f e/x"},
		{"is refused across devices if something is read", []string{"**=write", "/d/sub/f=read"}, unix.EXDEV, "d d/hidden d/sub d/sub/f d/x"},
		{"is refused across devices if something would become read", []string{"**=write", "/e/x=read"}, unix.EXDEV, "d d/hidden d/sub d/sub/f d/x"},
		{"is refused across devices if something would become hidden", []string{"**=write", "/e/x=none"}, unix.EXDEV, "d d/hidden d/sub d/sub/f d/x"},
		{"is refused if the new path is not write", []string{"**=write", "/e=read"}, unix.EACCES, "d d/hidden d/sub d/sub/f d/x"},
		{"is refused if the old path is not write", []string{"/d=read", "/d/**=read", "**=write"}, unix.EACCES, "d d/hidden d/sub d/sub/f d/x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := mount(t, tree{"d/x": "1", "d/sub/f": "2", "d/hidden": "3"}, tt.rules...)
			v.guest("cat d/x d/sub/f; ls d")
			err := os.Rename(v.path("d"), v.path("e"))
			if !errors.Is(err, tt.want) {
				t.Errorf("rename: %v, want %v", err, tt.want)
			}
			got := strings.Join(strings.Fields(v.guest("find d e 2>/dev/null | sort")), " ")
			if got != tt.after {
				t.Errorf("then: %q, want %q", got, tt.after)
			}
			if b, err := os.ReadFile(v.source + "/d/hidden"); err != nil || string(b) != "3" {
				t.Errorf("the source holds %q, %v", b, err)
			}
		})
	}
}

func TestExchange(t *testing.T) {
	v := mount(t, tree{"a": "one", "d/f": "two"}, "**=write")
	if v.read("a")+v.read("d/f") != "onetwo" {
		t.Fatal("before")
	}
	if err := unix.Renameat2(unix.AT_FDCWD, v.path("a"), unix.AT_FDCWD, v.path("d"), unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
	if got := v.read("d") + v.read("a/f") + v.names(""); got != "onetwoa d" {
		t.Errorf("after: %q", got)
	}
	err := unix.Renameat2(unix.AT_FDCWD, v.path("a"), unix.AT_FDCWD, v.path("d"), unix.RENAME_NOREPLACE)
	if err != unix.EEXIST {
		t.Errorf("rename without replacing: %v, want EEXIST", err)
	}
}

// TestWorkInsideADirectoryThatMoves keeps descriptors and a working directory
// across the rename of a directory above.
func TestWorkInsideADirectoryThatMoves(t *testing.T) {
	v := mount(t, tree{"d/sub/f": "content"}, "**=write")
	if got := v.guest("cd d/sub; exec 3<f 4>>f; mv ../../d ../../e; cat <&3; echo more >&4; cat f; pwd -P"); got !=
		"contentcontentmore\n"+v.path("e/sub") {
		t.Errorf("printed %q", got)
	}
	if b, err := os.ReadFile(v.source + "/d/sub/f"); err != nil || string(b) != "content" {
		t.Errorf("the source holds %q, %v", b, err)
	}
}

// TestAMovedFileIsTheDeltas: later changes of the source at its old path do not show.
func TestAMovedFileIsTheDeltas(t *testing.T) {
	v := mount(t, tree{"f": "then", "d/g": "then"}, "**=write")
	if v.read("f")+v.read("d/g") != "thenthen" {
		t.Fatal("before")
	}
	if err := errors.Join(os.Rename(v.path("f"), v.path("f2")), os.Rename(v.path("d"), v.path("d2"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "d/g"} {
		if err := os.WriteFile(v.source+"/"+name, []byte("now!"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(v.source+"/marker", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the marker shows", func() bool { return strings.Contains(v.names(""), "marker") })
	if got := v.read("f2") + v.read("d2/g"); got != "thenthen" {
		t.Errorf("read %q", got)
	}
}

func TestHardLinksMadeInsideShareTheFile(t *testing.T) {
	v := mount(t, tree{"a": "one", "d/": ""}, "**=write", "/ro/**=read")
	if err := os.Link(v.path("a"), v.path("d/b")); err != nil {
		t.Fatal(err)
	}
	v.write("a", "two")
	if got := v.read("d/b"); got != "two" {
		t.Errorf("the other name reads %q", got)
	}
	a, b := v.stat("a"), v.stat("d/b")
	if a.Ino != b.Ino || a.Nlink != 2 || b.Nlink != 2 {
		t.Errorf("a is %d with %d names, b %d with %d", a.Ino, a.Nlink, b.Ino, b.Nlink)
	}
	if err := os.Remove(v.path("a")); err != nil {
		t.Fatal(err)
	}
	v.write("d/b", "three")
	if st := v.stat("d/b"); st.Nlink != 1 || st.Ino != b.Ino {
		t.Errorf("what is left is %d with %d names, was %d", st.Ino, st.Nlink, b.Ino)
	}
	if got := v.read("d/b"); got != "three" {
		t.Errorf("what is left reads %q", got)
	}
}

func TestTheStrictestNameOfALinkedFileCounts(t *testing.T) {
	v := mount(t, tree{"a": "content"}, "**=write")
	if err := os.Link(v.path("a"), v.path("b")); err != nil {
		t.Fatal(err)
	}
	v.SetPolicy(compile(t, "**=write", "/b=view"))
	if got := v.guest("cat a; echo x >>a; cat b"); strings.Count(got, "Permission denied") != 3 {
		t.Errorf("printed %q", got)
	}
}

func TestTemporaryFilesCanBeLinked(t *testing.T) {
	v := mount(t, tree{"ro/": ""}, "**=write", "/ro/**=read")
	fd, err := unix.Open(v.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("made")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Linkat(fd, "", unix.AT_FDCWD, v.path("ro/f"), unix.AT_EMPTY_PATH); err != unix.EACCES {
		t.Errorf("link to a read path: %v, want EACCES", err)
	}
	if err := unix.Linkat(fd, "", unix.AT_FDCWD, v.path("f"), unix.AT_EMPTY_PATH); err != nil {
		t.Fatal(err)
	}
	if got := v.read("f"); got != "made" {
		t.Errorf("read %q", got)
	}
	if _, err := unix.Write(fd, []byte(" more")); err != nil {
		t.Fatal(err)
	}
	if got := v.read("f"); got != "made more" {
		t.Errorf("read %q", got)
	}
}
