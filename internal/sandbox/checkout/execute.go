package checkout

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitcommit"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// batchFiles is how many files are staged before they are made durable and placed: it bounds the
// open descriptors.
const batchFiles = 256

// execution is a plan that is executed.
type execution struct {
	*Plan
	txn     *history.Txn
	steps   []history.Step
	removes []*file
	places  []*file
	empties []vpath.Path // directories that lose their last file, deepest first
	makes   []vpath.Path // directories, parents first
	mask    uint32
	mtime   unix.Timespec
	index   int // the step of the index
}

// newExecution makes the steps of the transaction.
func (p *Plan) newExecution() (*execution, error) {
	x := &execution{Plan: p, mask: umask(), mtime: unix.NsecToTimespec(time.Now().UnixNano())}
	for _, f := range p.files {
		f.step = x.add(history.Step{Path: escaped(f.at), Before: f.was, After: x.comes(f), Linked: f.before != nil && f.before.Nlink > 1})
		if f.isGone() {
			x.removes = append(x.removes, f)
		} else {
			x.places = append(x.places, f)
		}
	}
	if err := x.findEmpties(); err != nil {
		return nil, err
	}
	for dir := range p.missing {
		x.makes = append(x.makes, dir)
	}
	slices.Sort(x.makes) // a parent is a prefix
	for _, dir := range x.makes {
		x.add(history.Step{Path: escaped(dir), After: &history.Entity{Mode: unix.S_IFDIR | 0o777&^x.mask}, Implied: true})
	}
	x.index = x.add(history.Step{
		Path: escaped(history.Index), Before: p.known.was, After: &history.Entity{Mode: p.known.before.Mode},
		Linked: p.known.before.Nlink > 1,
	})
	return x, nil
}

func escaped(p vpath.Path) string { return vpath.Escape(string(p)) }

func (x *execution) add(s history.Step) int {
	x.steps = append(x.steps, s)
	return len(x.steps) - 1
}

// comes returns what a step places, as far as it is known before the step.
func (x *execution) comes(f *file) *history.Entity {
	switch {
	case f.isGone():
		return nil
	case f.isLink():
		return &history.Entity{Mode: unix.S_IFLNK | 0o777, Target: vpath.Escape(f.target)}
	}
	return &history.Entity{Mode: unix.S_IFREG | x.mode(f), Mtime: x.mtime}
}

// mode returns the permission bits of a new file: those of the old one, as far as git lets it have
// them.
func (x *execution) mode(f *file) uint32 {
	mode := 0o666 &^ x.mask
	if f.before != nil && f.Old.Mode != gitcommit.Link {
		mode = f.before.Mode & 0o777
	}
	const exec = 0o111
	if f.New.Mode == gitcommit.Executable {
		return mode | mode&0o444>>2
	}
	return mode &^ exec
}

// findEmpties finds the directories that contain nothing but what goes.
func (x *execution) findEmpties() error {
	goes, stays, dirs := map[vpath.Path]bool{}, map[vpath.Path]bool{}, map[vpath.Path]bool{}
	above := func(p vpath.Path, in map[vpath.Path]bool) {
		for dir := p.Dir(); !dir.IsRoot() && !in[dir]; dir = dir.Dir() {
			in[dir] = true
		}
	}
	for _, f := range x.removes {
		goes[f.at] = true
		above(f.at, dirs)
	}
	for _, f := range x.places {
		above(f.at, stays)
	}
	var deepest []vpath.Path
	for dir := range dirs {
		deepest = append(deepest, dir)
	}
	slices.SortFunc(deepest, func(a, b vpath.Path) int {
		return cmp.Or(strings.Count(string(b), "/")-strings.Count(string(a), "/"), cmp.Compare(a, b))
	})
	for _, dir := range deepest {
		if stays[dir] {
			continue
		}
		was, err := x.emptied(dir, goes)
		if err != nil {
			return record.HostError("read "+changes.Quote(dir), err)
		}
		if was != nil {
			goes[dir] = true
			x.empties = append(x.empties, dir)
			x.add(history.Step{Path: escaped(dir), Before: was, Implied: true})
		}
	}
	return nil
}

// emptied describes a directory that contains only what goes, or returns nil.
func (x *execution) emptied(dir vpath.Path, goes map[vpath.Path]bool) (was *history.Entity, err error) {
	fd, err := x.tree.OpenDir(dir, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	only := true
	err = safefs.ReadNames(fd, func(name []byte, _ uint32, _ uint64) error {
		only = only && goes[dir.Child(string(name))]
		return nil
	})
	if err != nil || !only {
		return nil, err
	}
	err = x.tree.At(dir, func(e changes.Entry) error {
		now, err := e.Stat()
		if err == nil {
			was, err = history.EntityOf(e, now)
		}
		return err
	})
	return was, err
}

// run executes the steps: what goes first, so that there is room for the rest, and the index last.
func (x *execution) run(ctx context.Context) error {
	for _, f := range x.removes {
		if err := x.tree.At(f.at, func(e changes.Entry) error { return e.To(x.txn.Image(f.step)).Remove(f.before) }); err != nil {
			return at(f.at, err)
		}
		failpoint.At("checkout: one removed")
	}
	for _, dir := range x.empties {
		if err := x.tree.At(dir, changes.Entry.RemoveDir); err != nil {
			return at(dir, err)
		}
	}
	for _, dir := range x.makes {
		err := x.tree.At(dir, func(e changes.Entry) error { return e.MakeDir(changes.Look{Mode: 0o777 &^ x.mask}, nil) })
		if err != nil {
			return at(dir, err)
		}
		failpoint.At("checkout: directory made")
	}
	for batch := range slices.Chunk(x.places, batchFiles) {
		if ctx.Err() != nil {
			return errdefs.New(errdefs.Canceled, "write the work tree: %w", ctx.Err())
		}
		if err := x.place(batch); err != nil {
			return err
		}
	}
	if err := x.placeIndex(); err != nil {
		return at(history.Index, err)
	}
	return x.sync()
}

// at names the path of an error.
func at(p vpath.Path, err error) error {
	if changes.IsWayGone(err) {
		err = changes.ErrMoved
	}
	return errdefs.New(errdefs.KindOf(err), "%s: %w", changes.Quote(p), err)
}

// sync makes the changes of the source durable.
func (x *execution) sync() error {
	fd, err := x.tree.OpenDir(vpath.Root, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

// place places files and links.
func (x *execution) place(batch []*file) error {
	staged := map[*file]*changes.Staged{}
	placed := map[*file]bool{}
	defer func() {
		for f, s := range staged {
			if !placed[f] {
				_ = x.tree.At(f.at, func(e changes.Entry) error { return e.RemoveIfNamed(s) })
			}
			s.Close()
		}
	}()
	for _, f := range batch {
		if f.isLink() {
			continue
		}
		s, err := x.stage(f)
		if err != nil {
			return at(f.at, err)
		}
		staged[f] = s
	}
	if err := x.sync(); err != nil {
		return err
	}
	if err := x.txn.Flush(); err != nil {
		return err
	}
	for _, f := range batch {
		placed[f] = true
		err := x.tree.At(f.at, func(e changes.Entry) (err error) {
			e = e.To(x.txn.Image(f.step))
			if s := staged[f]; s != nil {
				err = e.Place(s, f.before)
			} else {
				err = e.MakeLink(f.target, f.before)
			}
			return cmp.Or(err, f.look(e))
		})
		if err != nil {
			return at(f.at, err)
		}
		failpoint.At("sync: one placed")
	}
	return nil
}

// look reads the attributes of the placed file.
func (f *file) look(e changes.Entry) error {
	now, err := e.Stat()
	if err != nil || now == nil {
		return errors.Join(err, changes.ErrMoved)
	}
	f.placed = *now
	return nil
}

// stage writes the new content beside the file, and notes it for the journal.
func (x *execution) stage(f *file) (*changes.Staged, error) {
	content, err := os.CreateTemp("", "agentfense-blob-")
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if err := os.Remove(content.Name()); err != nil {
		return nil, err
	}
	if err := x.objects.Blob(f.New.ID, content); err != nil {
		return nil, err
	}
	var s *changes.Staged
	err = x.tree.At(f.at, func(e changes.Entry) (err error) {
		look := changes.Look{Mode: x.mode(f), Mtime: x.mtime}
		if f.before != nil && !f.wasLink() {
			look.Before = f.before
		}
		s, err = e.Stage(content, look)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, x.note(f.step, s, "")
}

func (f *file) wasLink() bool { return f.Old.Mode == gitcommit.Link }

// note adds to the journal which file a step is about to place.
func (x *execution) note(step int, s *changes.Staged, index string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.File.Fd()), &st); err != nil {
		return err
	}
	x.txn.Place(step, &history.Entity{Mode: st.Mode, Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mtime: st.Mtim, Index: index})
	return nil
}

// placeIndex places the index, with the attributes of the files that were placed.
func (x *execution) placeIndex() error {
	var gone []string
	for _, f := range x.removes {
		gone = append(gone, f.Path)
	}
	var added []gitindex.New
	for _, f := range x.places {
		mode, err := parseOctal(f.New.Mode)
		if err != nil {
			return err
		}
		id, err := hex.DecodeString(f.New.ID)
		if err != nil {
			return err
		}
		added = append(added, gitindex.New{Path: f.Path, Mode: mode, Object: string(id), Stat: f.placed})
	}
	x.known.Replace(gone, added)
	sum := x.known.Sum()
	return x.tree.At(history.Index, func(e changes.Entry) error {
		before := x.known.before
		// With a later time, git would take a file for unchanged that was changed when the old
		// index was written (git's Documentation/technical/racy-git.txt).
		s, err := e.StageText(x.known.Encode(), changes.Look{Mode: before.Mode & record.PermBits, Mtime: before.Mtim, Before: before})
		if err != nil {
			return err
		}
		defer s.Close()
		err = cmp.Or(s.File.Sync(), x.note(x.index, s, hex.EncodeToString(sum[:])), x.txn.Flush())
		if err != nil {
			return errors.Join(err, e.RemoveIfNamed(s))
		}
		return e.To(x.txn.Image(x.index)).Place(s, before)
	})
}
