package layer

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// modelSnapshot is a frozen layer and a plain copy of what the view showed then.
type modelSnapshot struct{ layer, plain string }

// maxModelSnapshots bounds how many a run of the model keeps.
const maxModelSnapshots = 3

func (m *model) store() string { return m.b.o.Store }

// newPath returns a host path beside the source that nothing has yet.
func (m *model) newPath(what string) string {
	m.made++
	return filepath.Join(filepath.Dir(m.b.source), fmt.Sprintf("%s%d", what, m.made))
}

// snapshot freezes the stack, open or not, and keeps a copy of what it shows.
func (m *model) snapshot(t *rapid.T) {
	if len(m.snapshots) == maxModelSnapshots {
		m.snapshots = m.snapshots[1:]
	}
	frozen, err := "", error(nil)
	if rapid.Bool().Draw(t, "closed") {
		m.b.close()
		frozen, err = FreezeHead(m.b.dir, m.store())
		m.b.open()
	} else {
		frozen, err = m.b.Stack.Freeze()
	}
	must(m.b.t, err)
	s := modelSnapshot{frozen, m.newPath("plain")}
	copyLinked(m.b.t, m.plain, s.plain)
	m.snapshots = append(m.snapshots, s)
}

// rewind goes back to a snapshot, in the same stack or in a fork; the other stack is removed.
func (m *model) rewind(t *rapid.T) {
	if len(m.snapshots) == 0 {
		return
	}
	s := rapid.SampledFrom(m.snapshots).Draw(t, "snapshot")
	m.b.close()
	if rapid.Bool().Draw(t, "fork") {
		must(m.b.t, os.RemoveAll(m.b.dir))
		m.b.dir = m.newPath("layers")
		must(m.b.t, os.Mkdir(m.b.dir, 0o700))
	}
	must(m.b.t, Rewind(m.b.dir, m.store(), s.layer))
	m.b.open()
	must(m.b.t, os.RemoveAll(m.plain))
	copyLinked(m.b.t, s.plain, m.plain)
	m.inos = nil
}

// copyLinked is copyTree, and links the copies of the names of one file.
func copyLinked(t testing.TB, from, to string) {
	copyTree(t, from, to)
	first := map[uint64]string{}
	must(t, filepath.WalkDir(from, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := os.Lstat(path)
		if err != nil || i.IsDir() {
			return err
		}
		st, host := i.Sys().(*syscall.Stat_t), to+path[len(from):]
		if first[st.Ino] == "" {
			first[st.Ino] = host
			return nil
		}
		must(t, os.Remove(host))
		return os.Link(first[st.Ino], host)
	}))
}

// frozenStack opens what a snapshot shows.
func (m *model) frozenStack(s modelSnapshot) (*bench, func()) {
	b := &bench{t: m.b.t, source: m.b.source}
	b.o = Options{Source: openSourceFile(m.b.t, m.b.source), Store: m.store(), ReadOnly: true}
	if s.layer != "" {
		b.o.Dir = filepath.Join(m.store(), s.layer)
	}
	var err error
	b.Stack, err = Open(b.o)
	must(m.b.t, err)
	return b, b.close
}

// checkSnapshots fails if a snapshot shows anything but what was there.
func (m *model) checkSnapshots(t *rapid.T) {
	for _, s := range m.snapshots {
		b, done := m.frozenStack(s)
		frozen := model{b: b, plain: s.plain}
		got, _ := frozen.viewTree(t)
		want := plainTree(m.b.t, s.plain)
		if diff := cmp.Diff(withoutLinks(want), withoutLinks(got)); diff != "" {
			t.Fatalf("the snapshot (+) is not what was there (-):\n%s", diff)
		}
		done()
	}
}

// showSource reports whether each snapshot shows the source's file at p: else an edit of it would
// be a conflict after going back.
func (m *model) showSource(p vpath.Path) bool {
	for _, s := range m.snapshots {
		b, done := m.frozenStack(s)
		i, err := b.Lookup(p)
		done()
		if err != nil || i.Origin != Source || i.Mode&unix.S_IFMT != unix.S_IFREG {
			return false
		}
	}
	return true
}
