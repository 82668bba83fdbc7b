package codebase

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// recorder is an Observer that remembers.
type recorder struct {
	mu   sync.Mutex
	last map[ID]Usage
}

func (r *recorder) CodebaseChanged(id ID, u Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[ID]Usage{}
	}
	r.last[id] = u
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openStore(t testing.TB, dir string, observer Observer) *Store {
	t.Helper()
	s, err := Open(Options{Dir: dir, Home: filepath.Dir(dir), Observer: observer})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// newCodebase makes a store with one codebase in it.
func newCodebase(t testing.TB) *Codebase {
	t.Helper()
	c, err := openStore(t, filepath.Join(t.TempDir(), "codebases"), nil).Create(id.NewCodebase())
	must(t, err)
	return c
}

func path(t testing.TB, s string) vpath.Path {
	t.Helper()
	p, err := vpath.ParseText(s)
	must(t, err)
	return p
}

func upload(c *Codebase, p vpath.Path, content string, mode uint32) (Uploaded, error) {
	u, err := c.Upload(p, int64(len(content)), mode)
	if err != nil {
		return Uploaded{}, err
	}
	defer u.Abort()
	if _, err := io.WriteString(u, content); err != nil {
		return Uploaded{}, err
	}
	return u.Commit()
}

func put(t testing.TB, c *Codebase, p, content string) {
	t.Helper()
	_, err := upload(c, path(t, p), content, 0)
	must(t, err)
}

func download(c *Codebase, p vpath.Path) (string, error) {
	f, _, err := c.OpenFile(p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	return string(content), err
}

// listing is "path mode size target" of each entry.
func listing(t testing.TB, c *Codebase, dir string, recursive bool) []string {
	t.Helper()
	list, err := c.List(context.Background(), path(t, dir), recursive)
	must(t, err)
	var lines []string
	for _, i := range list {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %o %d %s", i.Path.Text(), i.Mode, i.SizeBytes, i.LinkTarget)))
	}
	return lines
}

func wantKind(t testing.TB, what string, err error, want errdefs.Kind) {
	t.Helper()
	if err == nil || errdefs.KindOf(err) != want {
		t.Errorf("%s: got %v (%s), want %s", what, err, errdefs.KindOf(err), want)
	}
}

// wantUsage checks the usage that is kept, and that counting comes to the same.
func wantUsage(t testing.TB, c *Codebase, files, size int64) {
	t.Helper()
	u := c.Usage()
	if u.FileCount != files || u.SizeBytes != size {
		t.Errorf("usage: got %d files, %d bytes, want %d, %d", u.FileCount, u.SizeBytes, files, size)
	}
	must(t, c.at(func(root int) error {
		g, err := count(root, vpath.Root, false)
		if g.FileCount != files || g.SizeBytes != size {
			t.Errorf("counted: %d files, %d bytes, want %d, %d", g.FileCount, g.SizeBytes, files, size)
		}
		return err
	}))
}

func wantEmptyStaging(t testing.TB, c *Codebase) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(c.path(), stagingDir))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("left in staging: %v", left)
	}
}
