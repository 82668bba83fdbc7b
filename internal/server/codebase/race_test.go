package codebase

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// exchanges is how often a directory and a link change places. What must hold
// holds at each; more of them only look more often.
const exchanges = 2000

// A directory that changes places with a link to a directory of the host never
// lets a call through to it: every step is relative to a handle.
func TestSwappingADirectoryForALink(t *testing.T) {
	c := newCodebase(t)
	host := t.TempDir()
	must(t, os.Mkdir(filepath.Join(host, "sub"), 0o700))
	for _, name := range []string{"f", "sub/f"} {
		must(t, os.WriteFile(filepath.Join(host, name), []byte("the host's"), 0o600))
	}
	put(t, c, "d/f", "inside")
	put(t, c, "d/sub/f", "inside")
	must(t, c.MakeLink(path(t, "l"), host))
	source, err := c.Source()
	must(t, err)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		d, l := filepath.Join(source, "d"), filepath.Join(source, "l")
		for {
			select {
			case <-stop:
				return
			default:
				if err := unix.Renameat2(unix.AT_FDCWD, d, unix.AT_FDCWD, l, unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	reached := 0
	for i := range exchanges {
		for _, p := range []string{"d/f", "d/sub/f"} {
			if content, err := download(c, path(t, p)); err == nil {
				reached++
				if content != "inside" {
					t.Errorf("%s: read %q", p, content)
				}
			}
			_, _ = upload(c, path(t, p), "inside", 0o666)
		}
		_, _ = upload(c, path(t, fmt.Sprintf("d/new%d/deep/f", i%7)), "inside", 0)
		_ = c.MakeDir(path(t, "d/sub"), 0o777)
		_ = c.MakeLink(path(t, "d/link"), "x")
		_ = c.Remove(path(t, fmt.Sprintf("d/new%d", i%7)))
		_ = c.Remove(path(t, "d/link"))
		if list, err := c.List(t.Context(), path(t, "d"), true); err == nil {
			for _, e := range list {
				if e.SizeBytes == int64(len("the host's")) {
					t.Errorf("listed the host's %s", e.Path)
				}
			}
		}
	}
	close(stop)
	<-done
	if reached == 0 {
		t.Error("no call ever met the directory")
	}
	for path, want := range map[string]string{".": "drwx------", "sub": "drwx------", "f": "-rw-------", "sub/f": "-rw-------"} {
		st, err := os.Lstat(filepath.Join(host, path))
		must(t, err)
		if path != "." && st.Mode().String() != want {
			t.Errorf("%s became %s", path, st.Mode())
		}
		if st.Mode().IsRegular() {
			content, err := os.ReadFile(filepath.Join(host, path))
			must(t, err)
			if string(content) != "the host's" {
				t.Errorf("%s was written to: %q", path, content)
			}
		}
	}
	entries, err := os.ReadDir(host)
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("something appeared outside: %v", entries)
	}
}
