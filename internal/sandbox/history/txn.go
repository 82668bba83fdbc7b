package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Txn is a transaction under way. One goroutine uses it, except Image.
type Txn struct {
	source  *Source
	tree    *changes.SourceTree
	entry   *Entry
	journal *os.File
	images  *os.File
	apart   bool         // the images cannot take what is in the source
	lines   bytes.Buffer // of the journal, not written yet
	written bool         // some lines are written that are not durable
	durable int64        // bytes of the journal, if written
	failure error        // of writing lines
}

// Begin writes the journal of a transaction, and the images of what it replaces if they cannot be
// moved there later. The caller holds the source's lock. Errors: Exhausted if the disk of the
// state directory is full, Denied for what cannot be read; nothing is left then.
func (s *Source) Begin(tree *changes.SourceTree, h Header, steps []Step) (*Txn, error) {
	t, err := s.begin(tree, h, steps)
	if errdefs.Is(err, errdefs.Exhausted) {
		// Earlier versions must not prevent an apply.
		if freed, pruneErr := s.pruneTo(0, ""); pruneErr == nil && freed > 0 {
			t, err = s.begin(tree, h, steps)
		}
	}
	if errdefs.Is(err, errdefs.Exhausted) {
		return nil, errdefs.New(errdefs.Exhausted, "%w: nothing applied: the state directory has no room for the previous versions of the files; to free the disk, discard changes or remove a sandbox", err)
	}
	return t, err
}

func (s *Source) begin(tree *changes.SourceTree, h Header, steps []Step) (_ *Txn, err error) {
	if h.Seq, err = s.nextSeq(); err != nil {
		return nil, err
	}
	h.Version, h.Source, h.Owner = version, s.source, tree.Owner
	dir := filepath.Join(s.dir, dirName(h.Seq, h.ID))
	t := &Txn{source: s, tree: tree, entry: &Entry{Header: h, Steps: steps, State: Pending, dir: dir}}
	defer func() {
		if err != nil {
			t.close()
			err = errors.Join(err, s.remove(dir))
		}
	}()
	for _, d := range []string{dir, filepath.Join(dir, imagesName)} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, record.HostError("history", err)
		}
	}
	if t.images, err = os.Open(filepath.Join(dir, imagesName)); err != nil {
		return nil, record.HostError("history", err)
	}
	failpoint.At("journal: made")
	if err := t.copyImages(); err != nil {
		return nil, err
	}
	if err := t.entry.markRest(); err != nil {
		return nil, err
	}
	if err := t.writeSteps(); err != nil {
		return nil, err
	}
	return t, t.lockIndex()
}

// copyImages copies what the steps replace and the images cannot take.
func (t *Txn) copyImages() error {
	err := t.tree.At(vpath.Root.Child("x"), func(e changes.Entry) error {
		t.apart = !e.CanMoveTo(int(t.images.Fd()))
		return nil
	})
	if err != nil {
		return record.HostError("history", err)
	}
	copied := false
	for i := range t.entry.Steps {
		image := t.Image(i)
		if image == nil || !image.Copied {
			continue
		}
		copied = true
		at, err := t.entry.Steps[i].At()
		if err != nil {
			return err
		}
		err = t.tree.At(at, func(e changes.Entry) error { return e.CopyTo(image) })
		if err != nil && !errors.Is(err, changes.ErrMoved) { // then the step finds another entry, too
			return record.HostError("keep the previous version of "+changes.Quote(at), err)
		}
	}
	if !copied {
		return nil
	}
	if err := unix.Syncfs(int(t.images.Fd())); err != nil {
		return record.HostError("history", err)
	}
	failpoint.At("journal: copied")
	return nil
}

// writeSteps writes the steps, durably.
func (t *Txn) writeSteps() (err error) {
	t.journal, err = os.OpenFile(filepath.Join(t.entry.dir, journalName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return record.HostError("history", err)
	}
	t.add(line{Header: &t.entry.Header})
	for i := range t.entry.Steps {
		t.add(line{Step: &t.entry.Steps[i]})
	}
	t.add(line{Ready: true})
	if err := t.flush(); err != nil {
		return err
	}
	for _, dir := range []string{t.entry.dir, t.source.dir} {
		if err := safefs.SyncDir(dir); err != nil {
			return record.HostError("history", err)
		}
	}
	failpoint.At("journal: ready")
	return nil
}

// maxLines is the size from which on lines are written before flush, in bytes.
const maxLines = 1 << 20

// add adds a line to those that flush writes.
func (t *Txn) add(l line) {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // no value of the type fails
	}
	t.lines.Write(text)
	t.lines.WriteByte('\n')
	if t.lines.Len() >= maxLines {
		t.writeOut()
	}
}

// writeOut writes the added lines.
func (t *Txn) writeOut() {
	if t.failure == nil {
		t.failure = t.append(t.lines.Bytes())
	}
	t.lines.Reset()
}

func (t *Txn) append(text []byte) error {
	info, err := t.journal.Stat()
	if err != nil {
		return err
	}
	if !t.written {
		t.written, t.durable = true, info.Size()
	}
	_, err = t.journal.WriteAt(text, info.Size())
	return err
}

// flush writes the added lines, durably, or none.
func (t *Txn) flush() error {
	err := t.write()
	if err == nil {
		err = t.takeBack(t.journal.Sync())
	}
	t.written = false
	return err
}

// write writes the added lines, of which the next flush makes them durable, or none since the last
// flush.
func (t *Txn) write() error {
	t.writeOut()
	err := t.failure
	t.failure = nil
	return t.takeBack(err)
}

// takeBack takes back, after an error, what is not durable.
func (t *Txn) takeBack(err error) error {
	if err == nil {
		return nil
	}
	if t.written {
		_ = t.journal.Truncate(t.durable) // an incomplete line is ignored
	}
	return record.HostError("history", err)
}

// ID returns the id of the transaction.
func (t *Txn) ID() string { return t.entry.ID }

// Image returns where the step of that number puts what it replaces, or nil for nothing.
func (t *Txn) Image(step int) *changes.Image {
	s := &t.entry.Steps[step]
	if !s.hasImage() {
		return nil
	}
	return &changes.Image{Dir: int(t.images.Fd()), Name: strconv.Itoa(step), Copied: t.apart || s.Linked}
}

// Place says what a step is about to place. It counts after Flush.
func (t *Txn) Place(step int, after *Entity) {
	t.entry.Steps[step].After = after
	t.add(line{Placed: &placedLine{step, after}})
}

// Flush makes what Place said durable.
func (t *Txn) Flush() error {
	if t.lines.Len() == 0 && !t.written {
		return nil
	}
	err := t.flush()
	failpoint.At("journal: placing")
	return err
}

// Commit ends the transaction, durably. left are the steps that were not executed. The changes of
// the source must be durable before.
func (t *Txn) Commit(left []int) error {
	defer t.close()
	if err := unlockIndex(t.tree, &t.entry.Header); err != nil {
		return err
	}
	if len(left) == len(t.entry.Steps) && t.entry.Branch == nil {
		return t.source.remove(t.entry.dir) // nothing has changed
	}
	for _, i := range left {
		t.entry.Steps[i].Left = true
	}
	t.add(line{Left: left})
	t.add(line{End: t.entry.end()})
	if err := t.flush(); err != nil {
		return err
	}
	failpoint.At("journal: committed")
	if of := t.entry.Of; of != "" {
		if err := t.source.dropImages(of); err != nil {
			return err
		}
	}
	failpoint.At("journal: images dropped")
	return t.source.prune(t.entry.Time)
}

// Rollback restores the source, and ends the transaction. It returns what it could not restore,
// because it has changed since. Errors: Precondition if it cannot be known whether the branch of
// the transaction was moved; the next command then recovers the source.
func (t *Txn) Rollback() ([]Left, error) {
	defer t.close()
	if moved, err := t.entry.hasMoved(t.tree); err != nil || moved {
		return nil, errdefs.New(errdefs.Precondition, "the branch may have been moved: %w", cmp.Or(err, changes.ErrMoved))
	}
	return t.source.rollBack(t.tree, t.entry, t.journal)
}

// close closes the files.
func (t *Txn) close() {
	for _, f := range []*os.File{t.journal, t.images} {
		if f != nil {
			f.Close()
		}
	}
}
