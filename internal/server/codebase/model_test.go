package codebase

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// model is a plain directory on which the same is done by other means.
type model struct {
	codebase *Codebase
	dir      string
}

func (m model) host(p vpath.Path) string { return filepath.Join(m.dir, string(p)) }

// mayHold reports whether something can be put at p: only directories above it.
func (m model) mayHold(p vpath.Path) bool {
	for above := range p.Ancestors() {
		st, err := os.Lstat(m.host(above))
		if err == nil && !st.IsDir() {
			return false
		}
	}
	return true
}

func (m model) kind(p vpath.Path) fs.FileMode {
	st, err := os.Lstat(m.host(p))
	switch {
	case err != nil || !m.mayHold(p):
		return fs.ModeIrregular // nothing
	default:
		return st.Mode().Type()
	}
}

func (m model) upload(t *rapid.T) {
	p, content := drawPath(t), rapid.StringN(0, 6, 6).Draw(t, "content")
	mode := rapid.SampledFrom([]uint32{0, 0o600, 0o755}).Draw(t, "mode")
	was := m.kind(p)
	_, err := upload(m.codebase, p, content, mode)
	if possible := m.mayHold(p) && (was == 0 || was == fs.ModeIrregular); possible != (err == nil) {
		t.Fatalf("upload %s: %v", p, err)
	}
	if err == nil {
		check(t, os.MkdirAll(m.host(p.Dir()), 0o755))
		check(t, os.WriteFile(m.host(p), []byte(content), 0o600))
		check(t, os.Chmod(m.host(p), fs.FileMode(modeOr(mode, fileMode))))
	}
}

func (m model) makeDir(t *rapid.T) {
	p, was := drawPath(t), fs.FileMode(0)
	was = m.kind(p)
	err := m.codebase.MakeDir(p, 0o700)
	if possible := m.mayHold(p) && (was == fs.ModeDir || was == fs.ModeIrregular); possible != (err == nil) {
		t.Fatalf("make directory %s: %v", p, err)
	}
	if err == nil {
		check(t, os.MkdirAll(m.host(p), 0o755))
		check(t, os.Chmod(m.host(p), 0o700))
	}
}

func (m model) makeLink(t *rapid.T) {
	p := drawPath(t)
	target := rapid.SampledFrom([]string{"a", "/", "../..", "a/b"}).Draw(t, "target")
	was := m.kind(p)
	err := m.codebase.MakeLink(p, target)
	if possible := m.mayHold(p) && was != fs.ModeDir; possible != (err == nil) {
		t.Fatalf("make link %s: %v", p, err)
	}
	if err == nil {
		check(t, os.MkdirAll(m.host(p.Dir()), 0o755))
		check(t, os.RemoveAll(m.host(p)))
		check(t, os.Symlink(target, m.host(p)))
	}
}

func (m model) remove(t *rapid.T) {
	p := drawPath(t)
	was := m.kind(p)
	err := m.codebase.Remove(p)
	if (was != fs.ModeIrregular) != (err == nil) {
		t.Fatalf("remove %s: %v", p, err)
	}
	if err == nil {
		check(t, os.RemoveAll(m.host(p)))
	}
}

// equal compares everything that can be seen.
func (m model) equal(t *rapid.T) {
	var want []string
	var files, size, dirs int64
	err := filepath.WalkDir(m.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == m.dir {
			return err
		}
		var st unix.Stat_t
		check(t, unix.Lstat(path, &st))
		line := fmt.Sprintf("%s %o", path[len(m.dir):], st.Mode)
		switch e.Type() {
		case 0:
			content, err := os.ReadFile(path)
			check(t, err)
			line += " " + string(content)
			size += st.Size
			files++
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			check(t, err)
			line += " " + target
			files++
		case fs.ModeDir:
			dirs++
		}
		want = append(want, line)
		return nil
	})
	check(t, err)
	list, err := m.codebase.List(context.Background(), vpath.Root, true)
	check(t, err)
	var got []string
	for _, i := range list {
		line := fmt.Sprintf("%s %o", string(i.Path), i.Mode)
		switch i.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			content, err := download(m.codebase, i.Path)
			check(t, err)
			line += " " + content
		case unix.S_IFLNK:
			line += " " + i.LinkTarget
		}
		got = append(got, line)
	}
	if !cmp.Equal(want, got) {
		t.Fatalf("the codebase differs (-want +got):\n%s", cmp.Diff(want, got))
	}
	if u := m.codebase.Usage(); u.FileCount != files || u.SizeBytes != size || u.DirCount != dirs {
		t.Fatalf("usage %+v, want %d files, %d bytes, %d directories", u, files, size, dirs)
	}
}

func check(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// drawPath draws few short names, so that paths meet.
func drawPath(t *rapid.T) vpath.Path {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3).Draw(t, "path")
	p := vpath.Root
	for _, n := range names {
		p = p.Child(n)
	}
	return p
}

func TestAgainstAPlainDirectory(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "codebases"), nil)
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		c, err := s.Create(id.NewCodebase())
		check(t, err)
		defer func() { check(t, errors.Join(s.Delete(c.ID()))) }()
		dir, err := os.MkdirTemp(base, "model")
		check(t, err)
		defer os.RemoveAll(dir)
		m := model{codebase: c, dir: dir}
		t.Repeat(map[string]func(*rapid.T){
			"": m.equal, "upload": m.upload, "makeDir": m.makeDir, "makeLink": m.makeLink, "remove": m.remove,
		})
	})
}

// Whatever path comes in, nothing outside of the codebase is there afterwards,
// and what was taken comes back.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{"a", "/a/b", "..", "a/../..", "./a", "a//b/", "\x00", "link/x", `\xff`, "new\nline", "\xff", "~", "fifo", ".wh.a"} {
		f.Add(s)
	}
	base := f.TempDir()
	s := openStore(f, filepath.Join(base, "codebases"), nil)
	c, err := s.Create(id.NewCodebase())
	must(f, err)
	must(f, c.MakeLink("/link", base))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := vpath.ParseText(text)
		if err != nil {
			return
		}
		if _, err := upload(c, p, text, 0); err == nil {
			if content, err := download(c, p); err != nil || content != text {
				t.Errorf("%q: %q, %v", text, content, err)
			}
		}
		_, _ = c.List(t.Context(), p, true)
		_ = c.MakeDir(p, 0)
		if p != "/link" {
			_ = c.Remove(p)
			for above := range p.Ancestors() {
				if !above.IsRoot() && above != "/link" {
					_ = c.Remove(above)
				}
			}
		}
		entries, err := os.ReadDir(base)
		must(t, err)
		if len(entries) != 1 {
			t.Errorf("%q: appeared outside: %v", text, entries)
		}
	})
}
