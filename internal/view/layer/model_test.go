package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// model runs the same operations on a stack and on a plain copy of its source
// and compares the two after each.
type model struct {
	b     *bench
	plain string
	inos  map[uint64]uint64 // plain inode → number shown

	snapshots []modelSnapshot
	made      int // paths that newPath has returned
}

// node is one file as the model compares it.
type node struct {
	Path, Mode, Content string
	Links               int
}

var modelNames = []string{"a", "b", ".wh.a", ".wh..wh..opq", "\xff\n", strings.Repeat("l", 253), strings.Repeat("l", 254), ".wh." + strings.Repeat("m", 250)}

func TestStackBehavesLikeAPlainDirectory(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		m := newModel(t, rt, filepath.Join(base, fmt.Sprint(n)))
		m.b.open()
		m.b.maxPins = rapid.Int64Range(0, 4).Draw(rt, "pins") // the others are copied
		defer func() { m.b.close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"":          m.check,
			"create":    m.create,
			"mkdir":     m.mkdir,
			"symlink":   m.symlink,
			"fifo":      m.fifo,
			"link":      m.link,
			"write":     m.write,
			"truncate":  m.truncate,
			"chmod":     m.chmod,
			"utimes":    m.utimes,
			"unlink":    m.unlink,
			"rmdir":     m.rmdir,
			"removeAll": m.removeAll,
			"rename":    m.rename,
			"rename2":   m.rename,
			"exchange":  m.exchange,
			"reopen":    func(*rapid.T) { m.b.reopen() },
			"freeze":    m.freeze,
			"snapshot":  m.snapshot,
			"rewind":    m.rewind,
			"snapshots": m.checkSnapshots,
			"userEdits": m.userEdits,
			"discard":   m.discard,
			"dropSome":  m.dropSome,
			"apply":     m.compareApplied,
		})
	})
}

// newModel makes a source and a plain copy of it below root.
func newModel(t *testing.T, rt *rapid.T, root string) *model {
	must(t, os.Mkdir(root, 0o755))
	m := &model{
		b:     &bench{t: t, source: filepath.Join(root, "source"), dir: filepath.Join(root, "layers")},
		plain: filepath.Join(root, "plain"),
	}
	must(t, os.Mkdir(m.b.source, 0o755))
	m.fill(rt)
	copyTree(t, m.b.source, m.plain)
	return m
}

// fill gives the source some content.
func (m *model) fill(t *rapid.T) {
	for range rapid.IntRange(0, 12).Draw(t, "files") {
		p := m.path(t)
		host := m.b.src(string(p))
		if _, err := os.Lstat(host); err == nil || os.MkdirAll(filepath.Dir(host), 0o755) != nil {
			continue
		}
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			_ = os.Mkdir(host, 0o750)
		case 1:
			_ = os.Symlink("../b", host)
		case 2:
			_ = unix.Mkfifo(host, 0o640)
		default:
			_ = os.WriteFile(host, []byte(rapid.StringMatching(`[a-z]{0,8}`).Draw(t, "content")), 0o644)
		}
	}
}

func (m *model) path(t *rapid.T) vpath.Path {
	p := vpath.Root
	for range rapid.IntRange(1, 3).Draw(t, "depth") {
		if i, err := os.Lstat(m.host(p)); err == nil && i.Mode()&fs.ModeSymlink != 0 {
			break // the kernel follows links before it calls a stack
		}
		p = p.Child(modelNames[rapid.IntRange(0, len(modelNames)-1).Draw(t, "name")])
	}
	return p
}

// existing prefers a path that exists.
func (m *model) existing(t *rapid.T, kind func(node) bool) vpath.Path {
	var paths []string
	for _, n := range plainTree(m.b.t, m.plain) {
		if n.Path != "/" && kind(n) {
			paths = append(paths, n.Path)
		}
	}
	if len(paths) == 0 || rapid.IntRange(0, 9).Draw(t, "miss") == 0 {
		return m.path(t)
	}
	return vpath.Path(rapid.SampledFrom(paths).Draw(t, "path"))
}

func anything(node) bool    { return true }
func isFile(n node) bool    { return strings.HasPrefix(n.Mode, "-") }
func isDirNode(n node) bool { return strings.HasPrefix(n.Mode, "d") }

func (m *model) host(p vpath.Path) string { return filepath.Join(m.plain, string(p)) }

// same fails unless both sides returned the same errno.
func (m *model) same(t *rapid.T, what string, p vpath.Path, got, want error) bool {
	var g, w syscall.Errno
	errors.As(got, &g)
	errors.As(want, &w)
	if g != w || (got == nil) != (want == nil) {
		t.Fatalf("%s %q: stack says %v, plain directory %v", what, p, got, want)
	}
	return got == nil
}

func (m *model) create(t *rapid.T) {
	p := m.path(t)
	f, _, err := m.b.Create(p, 0o604)
	if err == nil {
		_, werr := f.WriteAt([]byte("new"), 0)
		must(m.b.t, werr)
		f.Close()
	}
	g, perr := os.OpenFile(m.host(p), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o604)
	if perr == nil {
		_, _ = g.WriteString("new")
		must(m.b.t, g.Chmod(0o604))
		g.Close()
	}
	m.same(t, "create", p, err, perr)
}

func (m *model) mkdir(t *rapid.T) {
	p := m.path(t)
	_, err := m.b.Mkdir(p, 0o705)
	perr := os.Mkdir(m.host(p), 0o705)
	if m.same(t, "mkdir", p, err, perr) {
		must(m.b.t, os.Chmod(m.host(p), 0o705))
	}
}

func (m *model) symlink(t *rapid.T) {
	p := m.path(t)
	_, err := m.b.Symlink("/etc/passwd", p)
	m.same(t, "symlink", p, err, os.Symlink("/etc/passwd", m.host(p)))
}

func (m *model) fifo(t *rapid.T) {
	p := m.path(t)
	_, err := m.b.Mknod(p, unix.S_IFIFO|0o600)
	m.same(t, "mkfifo", p, err, unix.Mkfifo(m.host(p), 0o600))
}

func (m *model) link(t *rapid.T) {
	old, p := m.existing(t, isFile), m.path(t)
	_, err := m.b.Link(old, p)
	perr := unix.Linkat(unix.AT_FDCWD, m.host(old), unix.AT_FDCWD, m.host(p), 0)
	if errors.Is(err, unix.EPERM) || errors.Is(perr, unix.EPERM) {
		return // a directory, where the plain side may see another error first
	}
	m.same(t, "link", p, err, perr)
}

func (m *model) write(t *rapid.T) {
	p := m.existing(t, isFile)
	off := int64(rapid.IntRange(0, 9).Draw(t, "offset"))
	f, _, err := m.b.Open(p, true)
	if err == nil {
		_, werr := f.WriteAt([]byte("WRITE"), off)
		must(m.b.t, werr)
		f.Close()
	}
	g, perr := unix.Open(m.host(p), unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if perr == nil {
		_, perr = unix.Pwrite(g, []byte("WRITE"), off)
		unix.Close(g)
	}
	if errors.Is(err, unix.ENXIO) && errors.Is(perr, unix.ESPIPE) {
		return // a FIFO, which the stack never opens
	}
	m.same(t, "write", p, err, perr)
}

func (m *model) truncate(t *rapid.T) {
	p := m.existing(t, isFile)
	if i, err := os.Lstat(m.host(p)); err == nil && !i.Mode().IsRegular() {
		return
	}
	size := int64(rapid.IntRange(0, 9).Draw(t, "size"))
	_, err := m.b.SetAttr(p, SetAttr{Size: &size})
	m.same(t, "truncate", p, err, os.Truncate(m.host(p), size))
}

func (m *model) chmod(t *rapid.T) {
	p := m.existing(t, anything)
	if i, err := os.Lstat(m.host(p)); err == nil && i.Mode()&fs.ModeSymlink != 0 {
		return
	}
	mode := rapid.SampledFrom([]uint32{0, 0o444, 0o755, 0o1777, 0o6711}).Draw(t, "mode")
	_, err := m.b.SetAttr(p, SetAttr{Mode: &mode})
	m.same(t, "chmod", p, err, unix.Fchmodat(unix.AT_FDCWD, m.host(p), mode&modeMask, 0))
}

func (m *model) utimes(t *rapid.T) {
	p := m.existing(t, anything)
	ts := unix.Timespec{Sec: 1e9, Nsec: 5}
	_, err := m.b.SetAttr(p, SetAttr{Mtime: &ts})
	perr := setTimes(unix.AT_FDCWD, m.host(p), nil, &ts)
	if m.same(t, "utimes", p, err, perr) {
		if i, err := m.b.Lookup(p); err != nil || i.Mtime != ts {
			t.Fatalf("mtime of %q = %v, %v, want %v", p, i.Mtime, err, ts)
		}
	}
}

func (m *model) unlink(t *rapid.T) {
	p := m.existing(t, anything)
	want, wantErr := "", error(unix.ENOENT)
	if i, err := m.b.Lookup(p); err == nil && i.Mode&unix.S_IFMT == unix.S_IFREG {
		want, wantErr = m.content(t, p)
	}
	plain, err := unix.Open(m.host(p), unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err == nil {
		defer unix.Close(plain)
	}
	o, err := m.b.Unlink(p, rapid.Bool().Draw(t, "keep"))
	perr := unix.Unlink(m.host(p))
	if !m.same(t, "unlink", p, err, perr) || o == nil || wantErr != nil {
		o.Forget()
		return
	}
	m.useOrphan(t, o, want)
	o.Forget()
	_, err = unix.Pwrite(plain, []byte("x"), int64(len(want))) // it may have other names
	must(m.b.t, err)
}

func (m *model) content(t *rapid.T, p vpath.Path) (string, error) {
	content, err := readView(m.b.Stack, p)
	if err != nil {
		t.Fatalf("read %q: %v", p, err)
	}
	return content, nil
}

// useOrphan reads, writes and again reads a file that has no name.
func (m *model) useOrphan(t *rapid.T, o *Orphan, want string) {
	for _, write := range []bool{false, true} {
		f, i, err := o.Open(write)
		must(m.b.t, err)
		got, err := readFile(f, i.Size)
		must(m.b.t, err)
		if got != want {
			t.Fatalf("orphan reads %q, want %q", got, want)
		}
		if write {
			_, err = f.WriteAt([]byte("x"), i.Size)
			must(m.b.t, err)
			want += "x"
		}
		f.Close()
	}
	f, i, err := o.Open(false)
	must(m.b.t, err)
	defer f.Close()
	if got, err := readFile(f, i.Size); err != nil || got != want {
		t.Fatalf("orphan reads %q, %v after a write, want %q", got, err, want)
	}
}

func (m *model) rmdir(t *rapid.T) {
	p := m.existing(t, isDirNode)
	err := m.b.Rmdir(p, nil)
	m.same(t, "rmdir", p, err, unix.Rmdir(m.host(p)))
}

func (m *model) removeAll(t *rapid.T) {
	p := m.existing(t, isDirNode)
	if _, err := m.b.Lookup(p); err != nil {
		return
	}
	m.b.removeAll(string(p))
	must(m.b.t, os.RemoveAll(m.host(p)))
}

func (m *model) rename(t *rapid.T) {
	old, p := m.existing(t, anything), m.existing(t, anything)
	if rapid.Bool().Draw(t, "fresh") {
		p = m.path(t)
	}
	m.renameAs(t, old, p, RenameOptions{
		NoReplace:    rapid.Bool().Draw(t, "noreplace"),
		KeepReplaced: rapid.Bool().Draw(t, "keep"),
	})
}

func (m *model) exchange(t *rapid.T) {
	m.renameAs(t, m.existing(t, anything), m.existing(t, anything), RenameOptions{Exchange: true})
}

func (m *model) renameAs(t *rapid.T, old, p vpath.Path, o RenameOptions) {
	flags := uint(0)
	if o.NoReplace {
		flags |= unix.RENAME_NOREPLACE
	}
	if o.Exchange {
		flags |= unix.RENAME_EXCHANGE
	}
	orphan, err := m.b.Rename(old, p, o)
	orphan.Forget()
	perr := unix.Renameat2(unix.AT_FDCWD, m.host(old), unix.AT_FDCWD, m.host(p), flags)
	if (err == nil) != (perr == nil) {
		t.Fatalf("rename %q to %q (%+v): stack says %v, plain directory %v", old, p, o, err, perr)
	}
}

func (m *model) freeze(t *rapid.T) { must(m.b.t, m.b.Freeze()) }

// userEdits changes an untouched file of the source on the host.
func (m *model) userEdits(t *rapid.T) {
	p := m.existing(t, isFile)
	i, err := m.b.Lookup(p)
	if err != nil || i.Origin != Source || i.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	if !m.showSource(p) {
		return
	}
	hosts := []string{m.b.src(string(p)), m.host(p)}
	for _, s := range m.snapshots {
		hosts = append(hosts, filepath.Join(s.plain, string(p)))
	}
	for _, host := range hosts {
		must(m.b.t, os.WriteFile(host, []byte("edited"), 0o644))
	}
}
