package portable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Import is a database of AgentFS that becomes the delta of a new sandbox. Nothing in it is
// trusted.
type Import struct {
	Digest   string // SHA-256 of the file without its write-ahead log, in hex
	file     string
	conn     *sql.Conn
	closeAll func() error
	tree     *tree
}

// OpenImport reads a database of AgentFS 0.4, and refuses one that is damaged or inconsistent. It
// reads a copy, for which the directory of temporary files needs room. Errors: Invalid; Canceled;
// those of the host.
func OpenImport(ctx context.Context, file string) (*Import, error) {
	in := &Import{file: file}
	var err error
	if in.conn, in.closeAll, err = openForeign(ctx, file, &in.Digest); err != nil {
		return nil, err
	}
	conn := in.conn
	columns, err := readSchema(ctx, conn)
	if err == nil {
		err = checkPages(ctx, conn)
	}
	if err == nil {
		in.tree, err = readTree(ctx, conn, columns)
	}
	if err != nil {
		return nil, errors.Join(in.explain(ctx, err), in.Close())
	}
	return in, nil
}

// Close closes the database.
func (in *Import) Close() error { return in.closeAll() }

// explain adds the file to an error.
func (in *Import) explain(ctx context.Context, err error) error {
	if e, known := errors.AsType[*errdefs.Error](err); known {
		return errdefs.New(errdefs.KindOf(e), "import %s: %w", vpath.Quote(in.file), e)
	}
	return notDatabase(ctx, in.file, err)
}

// Notes say what a sandbox with the source cannot take over.
func (in *Import) Notes(source string) []string {
	notes := slices.Clone(in.tree.notes)
	if in.tree.base != "" && in.tree.base != source {
		notes = append(notes, fmt.Sprintf("the changes were made over %s and are imported over %s", vpath.Quote(in.tree.base), vpath.Quote(source)))
	}
	return notes
}

// maxRefusedNames is how many refused paths an error names.
const maxRefusedNames = 10

// Fill writes the changes to the empty layers of a sandbox that is being made in dir, with the
// record r. The policy must let the sandbox write them; with partial, what it does not is left out.
// Errors: Denied for refused paths; Exhausted; Invalid.
func (in *Import) Fill(ctx context.Context, home *record.Home, r *record.Record, dir string, partial bool) (result Result, err error) {
	source, err := r.Source.Open()
	if err != nil {
		return result, err
	}
	w, err := changes.OpenOver(&record.Sandbox{Home: home, Stored: *r}, source, r.Source,
		layer.Options{Dir: record.PartLayersDir(dir, ""), Quota: changes.QuotaOf(r)})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	f := &filler{ctx: ctx, in: in, stack: w.Stack, policy: w.Policy, first: map[int64]vpath.Path{}}
	for _, step := range []func() error{f.deletions, f.entries, f.contents, f.attributes} {
		if err := step(); err != nil {
			return result, in.explain(ctx, err)
		}
		failpoint.At("import: one step")
	}
	if len(f.result.Skipped) > 0 && !partial {
		return result, in.explain(ctx, refusedPaths(f.result.Skipped))
	}
	taken, err := w.Changes(nil, false)
	if err != nil {
		return result, in.explain(ctx, err)
	}
	f.result.count(taken)
	return f.result, writeValues(dir, in.tree.values)
}

func refusedPaths(list []Skipped) error {
	var text strings.Builder
	for _, s := range list[:min(len(list), maxRefusedNames)] {
		fmt.Fprintf(&text, "\n  %s: %s", s.Path, s.Why)
	}
	if more := len(list) - maxRefusedNames; more > 0 {
		fmt.Fprintf(&text, "\n  and %d more", more)
	}
	return errdefs.New(errdefs.Denied, "nothing was imported, because these changes are refused; --write PATTERN permits a path, --partial leaves the refused changes out:%s", text.String())
}

// filler writes a tree to layers.
type filler struct {
	ctx    context.Context
	in     *Import
	stack  *layer.Stack
	policy *policy.Policy
	first  map[int64]vpath.Path // the first name of each entry that was made, of a directory the only one
	dirs   []int64              // of first, those for attributes, parents first
	result Result
}

const (
	whyNotWritable = "the policy does not let the sandbox change it"
	whyDevice      = "a sandbox has no devices"
)

func (f *filler) refuse(p vpath.Path, why string) {
	f.result.Skipped = append(f.result.Skipped, Skipped{Path: p, Why: why})
}

func (f *filler) mayWrite(p vpath.Path) bool {
	return f.policy.Decide(p).Permission >= policy.Write
}

// lookup returns the entry at p. It ignores what the policy hides.
func (f *filler) lookup(p vpath.Path) (i layer.Info, exists bool, err error) {
	i, err = f.stack.Lookup(p)
	if err == nil {
		return i, true, nil
	}
	if errdefs.Is(err, errdefs.NotFound) || errors.Is(err, unix.ENOTDIR) {
		return i, false, nil
	}
	return i, false, err
}

func (f *filler) deletions() error {
	for _, p := range f.in.tree.whiteouts {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		if !f.mayWrite(p) {
			f.refuse(p, whyNotWritable)
			continue
		}
		_, exists, err := f.lookup(p)
		if err != nil {
			return err
		}
		if exists {
			if _, err := f.remove(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes what the view shows at p, as the sandbox could do it. Hidden entries of a
// directory stay in the source. It reports whether p is vacant now.
func (f *filler) remove(p vpath.Path) (gone bool, err error) {
	i, exists, err := f.lookup(p)
	if err != nil || !exists {
		return err == nil, err
	}
	if !f.mayWrite(p) {
		f.refuse(p, whyNotWritable)
		return false, nil
	}
	if !i.IsDir() {
		_, err := f.stack.Unlink(p, false)
		return err == nil, err
	}
	list, err := f.stack.ReadDir(p)
	if err != nil {
		return false, err
	}
	gone = true
	hidden := map[string]bool{}
	for _, e := range list {
		if hidden[e.Name] = !f.shows(p.Child(e.Name), e.Mode&unix.S_IFMT == unix.S_IFDIR); hidden[e.Name] {
			continue
		}
		below, err := f.remove(p.Child(e.Name))
		if err != nil {
			return false, err
		}
		gone = gone && below
	}
	if !gone {
		return false, nil
	}
	err = f.stack.Rmdir(p, func(name string) bool { return !hidden[name] })
	return err == nil, err
}

// shows reports whether the view shows an entry of the source.
func (f *filler) shows(p vpath.Path, isDir bool) bool {
	d := f.policy.Decide(p)
	if isDir {
		return d.ForDir() >= policy.View
	}
	return d.Permission >= policy.View
}

func (f *filler) entries() error {
	return f.in.tree.walk(func(p vpath.Path, ino int64, i *inode) (bool, error) {
		if err := f.ctx.Err(); err != nil {
			return false, err
		}
		if i.kind() == unix.S_IFDIR {
			return f.directory(p, ino, i)
		}
		return false, f.file(p, ino, i)
	})
}

// directory makes a directory, or goes into one that is there already. It reports whether there is
// one.
func (f *filler) directory(p vpath.Path, ino int64, i *inode) (bool, error) {
	now, exists, err := f.lookup(p)
	if err != nil {
		return false, err
	}
	if exists && now.IsDir() && f.shows(p, true) {
		// Only a copy of this directory says something about its mode.
		if i.isCopied && now.Mode&0o1777 != i.mode&0o1777 {
			if !f.mayWrite(p) {
				f.refuse(p, whyNotWritable)
				return true, nil
			}
			f.first[ino] = p
			f.dirs = append(f.dirs, ino)
		}
		return true, nil
	}
	if !f.mayWrite(p) && !(!exists && f.policy.MayMkdir(p)) {
		f.refuse(p, whyNotWritable)
		return false, nil
	}
	if gone, err := f.remove(p); err != nil || !gone {
		return false, err
	}
	if _, err := f.stack.Mkdir(p, 0o700); err != nil {
		return false, err
	}
	f.first[ino] = p
	f.dirs = append(f.dirs, ino)
	return true, nil
}

// file makes an entry that is no directory, or another name of one.
func (f *filler) file(p vpath.Path, ino int64, i *inode) error {
	switch i.kind() {
	case unix.S_IFREG, unix.S_IFLNK, unix.S_IFIFO, unix.S_IFSOCK:
	default:
		f.refuse(p, whyDevice)
		return nil
	}
	if !f.mayWrite(p) {
		f.refuse(p, whyNotWritable)
		return nil
	}
	if gone, err := f.remove(p); err != nil || !gone {
		return err
	}
	return f.make(p, ino, i)
}

func (f *filler) make(p vpath.Path, ino int64, i *inode) (err error) {
	if first, made := f.first[ino]; made {
		_, err = f.stack.Link(first, p)
		return err
	}
	f.first[ino] = p
	switch i.kind() {
	case unix.S_IFLNK:
		_, err = f.stack.Symlink(i.target, p)
	case unix.S_IFREG:
		if _, err = f.stack.Mknod(p, unix.S_IFREG|0o600); err == nil && i.size > 0 {
			_, err = f.stack.SetAttr(p, layer.SetAttr{Size: &i.size})
		}
	default:
		_, err = f.stack.Mknod(p, i.mode&(unix.S_IFMT|0o777))
	}
	return err
}

// contents writes the chunks of all files.
func (f *filler) contents() (err error) {
	var open *layer.File
	of, last := int64(0), int64(-1)
	defer func() { err = errors.Join(err, closeFile(open)) }()
	return eachRow(f.ctx, f.in.conn, "SELECT ino, chunk_index, CAST(data AS BLOB) FROM fs_data ORDER BY ino, chunk_index", func(scan func(...any) error) error {
		var ino, index int64
		var data []byte
		if err := scan(&ino, &index, &data); err != nil {
			return err
		}
		if ino != of || last < 0 {
			if err := closeFile(open); err != nil {
				return err
			}
			open, of, last = nil, ino, -1
			if p, made := f.first[ino]; made && f.in.tree.inodes[ino].kind() == unix.S_IFREG {
				var err error
				if open, _, err = f.stack.Open(p, true); err != nil {
					return err
				}
			}
		}
		if err := f.checkChunk(ino, index, last, int64(len(data))); err != nil || open == nil {
			last = index
			return err
		}
		last = index
		_, err := open.WriteAt(data, index*f.in.tree.chunk)
		return err
	})
}

func (f *filler) checkChunk(ino, index, last, size int64) error {
	i, chunk := f.in.tree.inodes[ino], f.in.tree.chunk
	switch {
	case i == nil || i.kind() != unix.S_IFREG:
		return malformed("fs_data: inode %d is not a regular file", ino)
	case index <= last || index < 0:
		return malformed("fs_data: chunk %d of inode %d is negative or occurs twice", index, ino)
	case size > chunk:
		return malformed("fs_data: chunk %d of inode %d has %d bytes: more than chunk_size %d", index, ino, size, chunk)
	case index > i.size/chunk || index*chunk+size > i.size:
		return malformed("fs_data: chunk %d of inode %d is beyond the size of the file, %d", index, ino, i.size)
	}
	return nil
}

func closeFile(f *layer.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// attributes sets modes and times. Directories come last, the deepest first, because their modes
// may not let this process in.
func (f *filler) attributes() error {
	for ino, p := range f.first {
		if i := f.in.tree.inodes[ino]; i.kind() != unix.S_IFDIR {
			if err := f.set(p, i); err != nil {
				return err
			}
		}
	}
	for _, ino := range slices.Backward(f.dirs) {
		if err := f.set(f.first[ino], f.in.tree.inodes[ino]); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) set(p vpath.Path, i *inode) error {
	mode := i.mode & 0o1777
	a := layer.SetAttr{Mode: &mode, Atime: &i.atime, Mtime: &i.mtime}
	if i.kind() == unix.S_IFLNK {
		a.Mode = nil
	}
	_, err := f.stack.SetAttr(p, a)
	return err
}
