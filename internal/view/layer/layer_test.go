package layer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// bench is a stack over a source directory, both in a temporary directory.
type bench struct {
	t      testing.TB
	source string
	dir    string
	o      Options
	*Stack
}

// newBench makes a source from files, whose names ending in "/" are
// directories, and opens a stack over it.
func newBench(t testing.TB, files map[string]string, change ...func(*Options)) *bench {
	t.Helper()
	root := t.TempDir()
	b := &bench{t: t, source: filepath.Join(root, "source"), dir: filepath.Join(root, "layers")}
	must(t, os.Mkdir(b.source, 0o755))
	for name, content := range files {
		path := filepath.Join(b.source, name)
		if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(path, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	for _, c := range change {
		c(&b.o)
	}
	b.open()
	t.Cleanup(b.close)
	return b
}

func (b *bench) open() {
	b.t.Helper()
	var err error
	b.o.Source, b.o.Dir, b.o.Store = openSourceFile(b.t, b.source), b.dir, filepath.Join(filepath.Dir(b.source), "frozen")
	b.Stack, err = Open(b.o)
	must(b.t, err)
}

// Freeze is Stack.Freeze without the layer's name.
func (b *bench) Freeze() error {
	_, err := b.Stack.Freeze()
	return err
}

// frozen returns the host path of p in the highest frozen layer.
func (b *bench) frozen(p string) string {
	b.t.Helper()
	name, err := Below(b.dir)
	must(b.t, err)
	return filepath.Join(b.o.Store, name, "top", p)
}

// Base returns the recorded base of p, or nil.
func (b *bench) Base(p vpath.Path) (*Base, error) {
	bases, err := b.Bases()
	if base, ok := bases[p]; ok {
		return &base, err
	}
	return nil, err
}

func (b *bench) close() {
	if b.Stack != nil {
		must(b.t, b.Stack.Close())
		b.Stack = nil
		b.o.Source.Close()
	}
}

func (b *bench) reopen() {
	b.t.Helper()
	b.close()
	b.open()
}

// src returns the host path of p in the source, and top that in the delta.
func (b *bench) src(p string) string { return filepath.Join(b.source, p) }
func (b *bench) top(p string) string { return filepath.Join(b.dir, "top", p) }

func (b *bench) write(p, content string) {
	b.t.Helper()
	f, _, err := b.Open(vpath.Path(p), true)
	if errors.Is(err, unix.ENOENT) {
		f, _, err = b.Create(vpath.Path(p), 0o644)
	}
	must(b.t, err)
	defer f.Close()
	size := int64(0)
	_, err = b.SetAttr(vpath.Path(p), SetAttr{Size: &size})
	must(b.t, err)
	_, err = f.WriteAt([]byte(content), 0)
	must(b.t, err)
}

func (b *bench) read(p string) string {
	b.t.Helper()
	content, err := readView(b.Stack, vpath.Path(p))
	must(b.t, err)
	return content
}

func readView(s *Stack, p vpath.Path) (string, error) {
	f, i, err := s.Open(p, false)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readFile(f, i.Size)
}

func readFile(f *File, size int64) (string, error) {
	buf := make([]byte, size+1)
	n, err := f.ReadAt(buf, 0)
	return string(buf[:n]), err
}

// names lists p in order.
func (b *bench) names(p string) []string {
	b.t.Helper()
	entries, err := b.ReadDir(vpath.Path(p))
	must(b.t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return sorted(names)
}

func (b *bench) lookup(p string) Info {
	b.t.Helper()
	i, err := b.Lookup(vpath.Path(p))
	must(b.t, err)
	return i
}

// changes renders Changes as "kind path" lines; "?" marks a nil Base.
func (b *bench) changes() []string {
	b.t.Helper()
	changes, err := b.Changes()
	must(b.t, err)
	untouched, err := b.IsUntouched()
	must(b.t, err)
	if untouched && len(changes) > 0 {
		b.t.Errorf("untouched, with %d changes", len(changes))
	}
	lines := []string{}
	for _, c := range changes {
		line := string("?cmd"[c.Kind]) + " " + string(c.Path)
		if c.Base == nil {
			line += " ?"
		}
		lines = append(lines, line)
	}
	return lines
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, what string, err error, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error = %v, want %v", what, err, want)
	}
}

func (b *bench) mkdir(p string) {
	b.t.Helper()
	_, err := b.Mkdir(vpath.Path(p), 0o755)
	must(b.t, err)
}

func (b *bench) unlink(p string) {
	b.t.Helper()
	_, err := b.Unlink(vpath.Path(p), false)
	must(b.t, err)
}

func (b *bench) rename(old, p string) {
	b.t.Helper()
	_, err := b.Rename(vpath.Path(old), vpath.Path(p), RenameOptions{})
	must(b.t, err)
}

// removeAll is rm -rf in the view.
func (b *bench) removeAll(p string) {
	b.t.Helper()
	i := b.lookup(p)
	if !i.IsDir() {
		b.unlink(p)
		return
	}
	for _, n := range b.names(p) {
		b.removeAll(string(vpath.Path(p).Child(n)))
	}
	must(b.t, b.Rmdir(vpath.Path(p), nil))
}
