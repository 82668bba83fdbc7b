package fusefs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemovingManyWhileOthersAreMade is `rm -rf` over more names than one
// READDIR holds, while another process keeps making files beside.
func TestRemovingManyWhileOthersAreMade(t *testing.T) {
	v := mount(t, nil, "**=write")
	big := v.source + "/big"
	if err := os.Mkdir(big, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 10000 {
		if err := os.WriteFile(fmt.Sprintf("%s/file-with-a-longer-name-%d", big, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := v.guest(`mkdir side
		(i=0; while [ $i -lt 500 ]; do : >side/$i; : >top$i; i=$((i+1)); done) &
		rm -rf big; echo status $?; wait; ls big 2>&1; ls side | wc -l; ls | grep -c top`)
	if want := "status 0\nls: cannot access 'big': No such file or directory\n500\n500"; out != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	if entries, err := os.ReadDir(big); err != nil || len(entries) != 10000 {
		t.Errorf("the source holds %d entries, %v", len(entries), err)
	}
}

// TestListingWhileEntriesComeAndGo: a program that reads a directory in small steps sees
// each name that stays exactly once.
func TestListingWhileEntriesComeAndGo(t *testing.T) {
	v := mount(t, nil, "**=write")
	for i := range 300 {
		v.write(fmt.Sprintf("stay%03d", i), "")
		v.write(fmt.Sprintf("go%03d", i), "")
	}
	fd, err := unix.Open(v.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	seen := map[string]int{}
	buf := make([]byte, 512)
	for step := 0; ; step++ {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			seen[name]++
		}
		if step < 300 {
			if err := os.Remove(v.path(fmt.Sprintf("go%03d", step))); err != nil {
				t.Fatal(err)
			}
			v.write(fmt.Sprintf("new%03d", step), "")
		}
		if step%10 == 0 {
			v.names("") // another process lists it from the beginning
		}
	}
	for i := range 300 {
		if name := fmt.Sprintf("stay%03d", i); seen[name] != 1 {
			t.Errorf("%s was seen %d times", name, seen[name])
		}
	}
}

func TestSeekingInADirectory(t *testing.T) {
	v := mount(t, tree{"a": "", "b": "", "c": "", "d": "", "e": ""}, "**=write")
	fd, err := unix.Open(v.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	list := func() string {
		var all []string
		buf := make([]byte, 4096)
		for {
			n, err := unix.Getdents(fd, buf)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				return strings.Join(all, " ")
			}
			_, _, all = unix.ParseDirent(buf[:n], -1, all)
		}
	}
	if got := list(); got != "a b c d e" {
		t.Errorf("first: %q", got)
	}
	if err := os.Remove(v.path("c")); err != nil {
		t.Fatal(err)
	}
	// 1 and 2 are "." and "..", so the third name's offset is 5.
	for _, tt := range []struct {
		offset int64
		want   string
	}{{0, "a b d e"}, {2, "a b d e"}, {4, "d e"}, {5, "d e"}, {6, "e"}, {99, ""}} {
		if _, err := unix.Seek(fd, tt.offset, 0); err != nil {
			t.Fatal(err)
		}
		if got := list(); got != tt.want {
			t.Errorf("from offset %d: %q, want %q", tt.offset, got, tt.want)
		}
	}
}

func TestTheLibrarysOwnNameIsNeverListed(t *testing.T) {
	v := mount(t, tree{".go-fuse-epoll-hack": "of the source", "a": "1"}, "**=write")
	if got := v.names(""); got != "a" {
		t.Errorf("names = %q", got)
	}
	if got := v.guest("mv a .go-fuse-epoll-hack; ln a .go-fuse-epoll-hack; ls -A"); !strings.HasSuffix(got, "\na") {
		t.Errorf("printed %q", got)
	}
}
