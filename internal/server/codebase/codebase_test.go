package codebase

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestUploadStoresFiles(t *testing.T) {
	observer := &recorder{}
	c, err := openStore(t, filepath.Join(t.TempDir(), "codebases"), observer).Create(id.NewCodebase())
	must(t, err)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	got, err := upload(c, path(t, "/dir/sub/run.sh"), "#!/bin/sh\n", 0o100755)
	must(t, err)
	sum := md5.Sum([]byte("#!/bin/sh\n"))
	if want := (Uploaded{SizeBytes: 10, MD5: hex.EncodeToString(sum[:])}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	put(t, c, "dir/plain", "old")
	put(t, c, "dir/plain", "newer")
	put(t, c, "empty", "")
	_, err = upload(c, path(t, "closed"), "", 0o6001)
	must(t, err)
	must(t, c.MakeDir(path(t, "hollow/inner"), 0))
	must(t, c.MakeDir(path(t, "tight"), 0o550))
	must(t, c.MakeLink(path(t, "link"), "/etc/passwd"))
	must(t, c.MakeLink(path(t, "link"), "dir/plain"))
	want := []string{
		"closed 100401 0", "dir 40755 0", "dir/plain 100644 5", "dir/sub 40755 0", "dir/sub/run.sh 100755 10", "empty 100644 0",
		"hollow 40755 0", "hollow/inner 40755 0", "link 120777 0 dir/plain", "tight 40750 0",
	}
	if got := listing(t, c, "", true); !cmp.Equal(got, want) {
		t.Errorf("recursive listing (-want +got):\n%s", cmp.Diff(want, got))
	}
	want = []string{"dir/plain 100644 5", "dir/sub 40755 0"}
	if got := listing(t, c, "/dir/", false); !cmp.Equal(got, want) {
		t.Errorf("listing of a directory (-want +got):\n%s", cmp.Diff(want, got))
	}
	content, err := download(c, path(t, "dir/plain"))
	if err != nil || content != "newer" {
		t.Errorf("downloaded %q, %v", content, err)
	}
	wantUsage(t, c, 5, 15)
	if got := observer.last[c.ID()]; got != c.Usage() {
		t.Errorf("the observer was told %+v, it is %+v", got, c.Usage())
	}
	wantEmptyStaging(t, c)
}

func TestNamesOfAnyBytes(t *testing.T) {
	c := newCodebase(t)
	names := []string{"new\nline", "\xff\xfe", `back\slash`, `\xff`, " ", "-rf", ".wh.x", "\u202e.txt", strings.Repeat("n", vpath.NameMax)}
	for _, name := range names {
		p, err := vpath.Parse("d/" + name)
		must(t, err)
		if p != path(t, p.Text()) {
			t.Fatalf("%q does not survive the wire as %q", name, p.Text())
		}
		_, err = upload(c, p, name, 0)
		must(t, err)
		if content, err := download(c, p); err != nil || content != name {
			t.Errorf("%q: downloaded %q, %v", name, content, err)
		}
	}
	if got := listing(t, c, "d", false); len(got) != len(names) {
		t.Errorf("listed: %q", got)
	}
}

func TestUploadRefuses(t *testing.T) {
	c := newCodebase(t)
	put(t, c, "file", "content")
	put(t, c, "dir/inner", "content")
	must(t, c.MakeLink(path(t, "link"), "file"))
	must(t, c.MakeLink(path(t, "dirlink"), "dir"))
	must(t, unix.Mkfifo(filepath.Join(c.path(), filesDir, "fifo"), 0o600))
	before := listing(t, c, "", true)
	for _, r := range []struct {
		name, path string
		want       errdefs.Kind
	}{
		{"the root", "/", errdefs.Invalid},
		{"a directory", "dir", errdefs.Precondition},
		{"below a file", "file/new", errdefs.Precondition},
		{"a symbolic link", "link", errdefs.Invalid},
		{"below a symbolic link", "dirlink/new", errdefs.Invalid},
		{"far below a symbolic link", "dirlink/a/b/new", errdefs.Invalid},
		{"an over-long path", strings.Repeat("a/", 2048) + "f", errdefs.Invalid},
	} {
		_, err := upload(c, path(t, r.path), "evil", 0)
		wantKind(t, "upload to "+r.name, err, r.want)
	}
	wantKind(t, "a directory in a file's place", c.MakeDir(path(t, "file"), 0), errdefs.Precondition)
	wantKind(t, "a directory in a link's place", c.MakeDir(path(t, "dirlink"), 0), errdefs.Invalid)
	wantKind(t, "a link in a directory's place", c.MakeLink(path(t, "dir"), "x"), errdefs.Precondition)
	for _, target := range []string{"", "a\x00b", strings.Repeat("x", unix.PathMax)} {
		wantKind(t, "a link's target", c.MakeLink(path(t, "new"), target), errdefs.Invalid)
	}
	for _, p := range []string{"..", "a/../../b", "a\x00b", strings.Repeat("n", vpath.NameMax+1)} {
		_, err := vpath.ParseText(p)
		wantKind(t, fmt.Sprintf("the path %.20q", p), err, errdefs.Invalid)
	}
	if after := listing(t, c, "", true); !cmp.Equal(before, after) {
		t.Errorf("something changed:\n%s", cmp.Diff(before, after))
	}
	wantEmptyStaging(t, c)
}

func TestUploadKeepsItsSize(t *testing.T) {
	c := newCodebase(t)
	put(t, c, "f", "old")
	_, err := c.Upload(path(t, "f"), -1, 0)
	wantKind(t, "a negative size", err, errdefs.Invalid)
	more, err := c.Upload(path(t, "f"), 3, 0)
	must(t, err)
	_, err = more.Write([]byte("four"))
	wantKind(t, "too much", err, errdefs.Invalid)
	_, err = more.Commit()
	wantKind(t, "the commit of too much", err, errdefs.Invalid)
	less, err := c.Upload(path(t, "new/f"), 3, 0)
	must(t, err)
	_, err = less.Write([]byte("ab"))
	must(t, err)
	_, err = less.Commit()
	wantKind(t, "too little", err, errdefs.Invalid)
	_, err = less.Write([]byte("c"))
	wantKind(t, "a write after the end", err, errdefs.Precondition)
	unknown, err := c.Upload(path(t, "g"), 0, 0)
	must(t, err)
	_, err = unknown.Write([]byte("any length"))
	must(t, err)
	_, err = unknown.Commit()
	must(t, err)
	if got := listing(t, c, "", true); !cmp.Equal(got, []string{"f 100644 3", "g 100644 10"}) {
		t.Errorf("there is %q", got)
	}
	wantEmptyStaging(t, c)
}

func TestReadRefuses(t *testing.T) {
	c := newCodebase(t)
	put(t, c, "dir/file", "content")
	must(t, c.MakeLink(path(t, "link"), "dir/file"))
	must(t, c.MakeLink(path(t, "dirlink"), "dir"))
	must(t, c.MakeLink(path(t, "out"), "/"))
	must(t, unix.Mkfifo(filepath.Join(c.path(), filesDir, "fifo"), 0o600))
	for _, r := range []struct {
		name, path string
		open, list errdefs.Kind
	}{
		{"an absent name", "absent", errdefs.NotFound, errdefs.NotFound},
		{"below an absent name", "absent/x", errdefs.NotFound, errdefs.NotFound},
		{"below a file", "dir/file/x", errdefs.NotFound, errdefs.NotFound},
		{"a symbolic link", "dirlink", errdefs.Invalid, errdefs.Invalid},
		{"below a symbolic link", "dirlink/file", errdefs.Invalid, errdefs.Invalid},
		{"below a link out of it", "out/etc", errdefs.Invalid, errdefs.Invalid},
		{"a FIFO", "fifo", errdefs.Invalid, errdefs.Invalid},
	} {
		_, err := download(c, path(t, r.path))
		wantKind(t, "download of "+r.name, err, r.open)
		_, err = c.List(context.Background(), path(t, r.path), true)
		wantKind(t, "list of "+r.name, err, r.list)
		if err != nil && strings.Contains(err.Error(), c.path()) {
			t.Errorf("the error names the host's path: %v", err)
		}
	}
	_, err := download(c, vpath.Root)
	wantKind(t, "download of the root", err, errdefs.Invalid)
	_, err = c.List(context.Background(), path(t, "dir/file"), false)
	wantKind(t, "list of a file", err, errdefs.Invalid)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = c.List(canceled, vpath.Root, true)
	wantKind(t, "list for nobody", err, errdefs.Canceled)
}

func TestRemove(t *testing.T) {
	c := newCodebase(t)
	for _, p := range []string{"a", "d/b", "d/e/c", "kept"} {
		put(t, c, p, "12345")
	}
	must(t, c.MakeLink(path(t, "link"), "kept"))
	must(t, c.MakeLink(path(t, "dirlink"), "d"))
	must(t, os.Chmod(filepath.Join(c.path(), filesDir, "d", "e"), 0))
	for _, p := range []string{"a", "d", "link"} {
		must(t, c.Remove(path(t, p)))
	}
	wantKind(t, "what is gone", c.Remove(path(t, "a")), errdefs.NotFound)
	wantKind(t, "the root", c.Remove(vpath.Root), errdefs.Invalid)
	wantKind(t, "below a file", c.Remove(path(t, "kept/x")), errdefs.NotFound)
	wantKind(t, "below a link", c.Remove(path(t, "dirlink/x")), errdefs.Invalid)
	wantUsage(t, c, 2, 5)
	wantEmptyStaging(t, c)
}

func TestLastCommittedUploadWins(t *testing.T) {
	c := newCodebase(t)
	var uploads []*Upload
	for i := range 8 {
		u, err := c.Upload(path(t, "f"), 0, 0)
		must(t, err)
		for range 10 {
			fmt.Fprintf(u, "%d", i)
		}
		uploads = append(uploads, u)
	}
	for _, i := range []int{3, 0, 7, 5} {
		_, err := uploads[i].Commit()
		must(t, err)
		if content, _ := download(c, path(t, "f")); content != strings.Repeat(fmt.Sprint(i), 10) {
			t.Errorf("after the commit of %d: %q", i, content)
		}
	}
	uploads[1].Abort()
	wantUsage(t, c, 1, 10)
}

func TestChangeByOthers(t *testing.T) {
	c := newCodebase(t)
	put(t, c, "a", "123")
	source, err := c.Source()
	must(t, err)
	write := func(name string) { must(t, os.WriteFile(filepath.Join(source, name), []byte("12345"), 0o644)) }
	must(t, c.Change(func() (*SizeDelta, error) {
		write("b")
		return &SizeDelta{FileCount: 1, SizeBytes: 5}, nil
	}))
	wantUsage(t, c, 2, 8)
	broken := errdefs.New(errdefs.Exhausted, "sync: the disk is full")
	err = c.Change(func() (*SizeDelta, error) {
		write("c")
		return nil, broken
	})
	wantKind(t, "a sync that fails", err, errdefs.Exhausted)
	wantUsage(t, c, 3, 13)
}

// Many uploads at once, some to one path: each file is one of those uploaded,
// and what is told is right.
func TestUploadsAtOnce(t *testing.T) {
	const writers, rounds, paths, size = 8, 60, 5, 3000
	observer := &recorder{}
	c, err := openStore(t, filepath.Join(t.TempDir(), "codebases"), observer).Create(id.NewCodebase())
	must(t, err)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			content := strings.Repeat(string(rune('a'+w)), size)
			for i := range rounds {
				p := vpath.Path(fmt.Sprintf("/d%d/f", i%paths))
				if _, err := upload(c, p, content, 0); err != nil {
					t.Error(err)
				}
				got, err := download(c, p)
				if err != nil || len(got) != size || strings.Count(got, got[:1]) != size {
					t.Errorf("%s is mixed: %d bytes, %v", p, len(got), err)
				}
			}
		})
	}
	wg.Wait()
	wantUsage(t, c, paths, paths*size)
	if got := observer.last[c.ID()]; got != c.Usage() {
		t.Errorf("the observer was told %+v, it is %+v", got, c.Usage())
	}
	wantEmptyStaging(t, c)
}
