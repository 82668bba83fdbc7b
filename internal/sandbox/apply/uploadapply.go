package apply

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/uploaded"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Fetch calls put with each change of a server's sandbox, parents before children,
// and with the content of a regular file.
type Fetch func(put func(CarriedChange, io.Reader) error) error

// Upload applies the changes that fetch returns to the directory, with the checks of
// Changes. The base of each change is what was uploaded, and the rules are those that the
// client sent; the server controls neither. If a path stops the apply on the server, Upload
// applies nothing. Errors: those of Changes, with name as the sandbox, and of fetch.
func Upload(ctx context.Context, u *uploaded.Directory, name string, fetch Fetch, dryRun bool, progress func(tried, total int)) (result Result, err error) {
	release, err := u.LockApply()
	if err != nil {
		return result, err
	}
	defer release()
	st, err := stage(u, fetch)
	if err != nil {
		return result, errors.Join(err, clear(u))
	}
	defer func() { err = errors.Join(err, clear(u)) }()
	var made []changes.Version
	stopped := st.stopped()
	result, err = Changes(ctx, u.Sandbox, Options{
		DryRun: dryRun || stopped, Progress: progress, placed: func(v []changes.Version) { made = append(made, v...) },
	})
	result.Paths = st.merge(result.Paths)
	if err == nil || errdefs.Is(err, errdefs.Precondition) {
		if refusal := Refusal(name, result.Paths); refusal != nil {
			result.Skip()
			err = refusal
		}
	}
	return result, errors.Join(err, note(u, made, st.sums))
}

// openDelta opens the delta for changes, after it has removed the leftovers of a killed
// apply from the directory.
func openDelta(u *uploaded.Directory) (*changes.Work, error) {
	w, err := changes.OpenTo(u.Sandbox, record.PurposeApply, nil, false)
	if err != nil {
		return nil, err
	}
	changes, err := w.Changes(nil, false)
	if err == nil {
		err = w.FinishDirs(changes)
	}
	if err == nil {
		err = w.Stack.Reset()
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// clear empties the delta.
func clear(u *uploaded.Directory) error {
	w, err := openDelta(u)
	if err != nil {
		return err
	}
	return w.Close()
}

// staging has the fetched changes: in the delta, or as outcomes.
type staging struct {
	upload *uploaded.Directory
	stack  *layer.Stack
	// told are the outcomes of paths that are not applied, or for which there is nothing to
	// do.
	told    map[vpath.Path]PathResult
	sums    map[vpath.Path]sum // of regular files and of links
	carried []CarriedChange
	// gone are directories to delete, and modes directories to get a mode, after all other
	// changes; parents first.
	gone  []vpath.Path
	modes []CarriedChange
	late  []lateFile
}

type sum = [sha256.Size]byte

// lateFile is a file that replaces a directory.
type lateFile struct {
	CarriedChange
	content *os.File // without a name; nil if it has no content
}

// stage puts the fetched changes into the delta.
func stage(u *uploaded.Directory, fetch Fetch) (st *staging, err error) {
	w, err := openDelta(u)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	st = &staging{upload: u, stack: w.Stack, told: map[vpath.Path]PathResult{}, sums: map[vpath.Path]sum{}}
	defer st.close()
	if err := fetch(st.put); err != nil {
		return nil, err
	}
	return st, st.finish()
}

func (st *staging) close() {
	for _, l := range st.late {
		if l.content != nil {
			l.content.Close()
		}
	}
}

// put stages a change.
func (st *staging) put(c CarriedChange, content io.Reader) error {
	if !isCarried(c.Outcome) {
		st.tell(c, c.Outcome, c.Reason)
		return nil
	}
	st.carried = append(st.carried, c)
	return st.settle(c, st.place(c, content))
}

// settle finishes a change with the error err. It records what was uploaded as its base,
// whatever the directory has now.
func (st *staging) settle(c CarriedChange, err error) error {
	switch {
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Precondition), errdefs.Is(err, errdefs.Exists):
		st.tell(c, Conflict, "the directory has changed since the upload")
		return nil
	case err != nil:
		return err
	}
	if _, told := st.told[c.Path]; told {
		return nil
	}
	return st.stack.Record(c.Path, st.base(c.Path))
}

// base returns what the sandbox saw at p: what was uploaded, or the present git index if it
// has the same content and git only wrote it again.
func (st *staging) base(p vpath.Path) *layer.Base {
	if want := st.upload.Index(p); want != nil {
		said, now := sourceIndexNow(func() (*os.File, error) { return st.stack.OpenSource(p) })
		if bytes.Equal(said, want) {
			return now
		}
	}
	return st.upload.Base(p)
}

// tell records the outcome of a path that is not applied.
func (st *staging) tell(c CarriedChange, o Outcome, reason string) {
	st.told[c.Path] = PathResult{Path: c.Path, Status: c.Status, Outcome: o, Reason: reason}
}

// place makes the change in the delta, as far as that is possible now.
func (st *staging) place(c CarriedChange, content io.Reader) error {
	now, err := st.stack.Lookup(c.Path)
	if err != nil && !errdefs.Is(err, errdefs.NotFound) && !errdefs.Is(err, errdefs.Precondition) {
		return err
	}
	there := err == nil
	switch {
	case c.Status == changes.Deleted && !there:
		st.tell(c, Present, "it is already deleted")
		return nil
	case there && now.IsDir():
		return st.placeOverDir(c, content)
	case there:
		if _, err := st.stack.Unlink(c.Path, false); err != nil || c.Status == changes.Deleted {
			return err
		}
	}
	return st.make(c, content)
}

// placeOverDir makes a change that replaces a directory.
func (st *staging) placeOverDir(c CarriedChange, content io.Reader) error {
	switch {
	case c.Status == changes.Deleted:
		st.gone = append(st.gone, c.Path)
	case c.Mode&record.TypeBits == unix.S_IFDIR:
		st.modes = append(st.modes, c)
	default:
		return st.putOff(c, content)
	}
	return nil
}

// putOff keeps the replacement of a directory until the directory is empty.
func (st *staging) putOff(c CarriedChange, content io.Reader) error {
	l := lateFile{CarriedChange: c}
	st.gone = append(st.gone, c.Path)
	if c.Mode&record.TypeBits == unix.S_IFREG {
		fd, err := unix.Open(st.upload.Sandbox.Dir(), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return record.HostError("fetch "+c.Path.String(), err)
		}
		l.content = os.NewFile(uintptr(fd), "fetched")
		if _, err := io.Copy(l.content, io.LimitReader(content, c.SizeBytes)); err != nil {
			return errors.Join(err, l.content.Close())
		}
	}
	st.late = append(st.late, l)
	return nil
}

// make makes a new entry. The owner can fill a directory until finish.
func (st *staging) make(c CarriedChange, content io.Reader) error {
	var err error
	switch c.Mode & record.TypeBits {
	case unix.S_IFDIR:
		st.modes = append(st.modes, c)
		_, err = st.stack.Mkdir(c.Path, c.Mode&record.StickyBits|changes.OwnerBits)
	case unix.S_IFLNK:
		st.sums[c.Path] = sha256.Sum256([]byte(c.Target))
		_, err = st.stack.Symlink(c.Target, c.Path)
	case unix.S_IFIFO:
		_, err = st.stack.Mknod(c.Path, unix.S_IFIFO|c.Mode&record.PermBits)
	case unix.S_IFREG:
		err = st.write(c, content)
	default:
		err = errdefs.New(errdefs.Internal, "server sent %s with an unknown type", c.Path)
	}
	return err
}

// write makes a regular file. Errors: Unavailable if the content differs from the announced
// one.
func (st *staging) write(c CarriedChange, content io.Reader) (err error) {
	f, _, err := st.stack.Create(c.Path, c.Mode&record.PermBits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	n, err := io.Copy(io.NewOffsetWriter(f, 0), io.TeeReader(io.LimitReader(content, c.SizeBytes), h))
	if err == nil && n != c.SizeBytes {
		err = errdefs.New(errdefs.Unavailable, "fetch %s: received %d bytes of %d: the sandbox is changing it; try again", c.Path, n, c.SizeBytes)
	}
	if err != nil {
		return err
	}
	st.sums[c.Path] = sum(h.Sum(nil))
	if c.SHA256 != "" && c.SHA256 != hex.EncodeToString(h.Sum(nil)) {
		st.tell(c, ChangedSinceReview, nowElse)
		return st.stack.Drop(c.Path)
	}
	return nil
}

// finish makes the delayed changes.
func (st *staging) finish() error {
	for _, p := range slices.Backward(st.gone) {
		err := st.stack.Rmdir(p, nil)
		if errdefs.Is(err, errdefs.Precondition) {
			st.tell(CarriedChange{Path: p, Status: changes.Deleted}, Kept, "it contains files that were not uploaded")
			err = nil
		}
		if err := st.settle(CarriedChange{Path: p, Status: changes.Deleted}, err); err != nil {
			return err
		}
	}
	for _, l := range st.late {
		var err error
		if l.content != nil {
			_, err = l.content.Seek(0, io.SeekStart)
		}
		if err == nil {
			delete(st.told, l.Path)
			err = st.settle(l.CarriedChange, st.make(l.CarriedChange, l.content))
		}
		if err != nil {
			return err
		}
	}
	for _, c := range slices.Backward(st.modes) {
		_, err := st.stack.SetAttr(c.Path, layer.SetAttr{Mode: new(c.Mode & record.StickyBits)})
		if err := st.settle(c, err); err != nil {
			return err
		}
	}
	return nil
}

// stopped reports whether a path stops the apply before its first step.
func (st *staging) stopped() bool {
	for _, r := range st.told {
		if r.Outcome == Conflict || r.Outcome == Refused {
			return true
		}
	}
	return false
}

// merge adds to the outcomes in the directory what was told, which counts where both
// say something, and what was carried and changes nothing there: an apply that was
// killed has brought it over, and the codebase lacks it still.
func (st *staging) merge(tried []PathResult) []PathResult {
	paths := slices.Collect(maps.Values(st.told))
	known := map[vpath.Path]bool{}
	for p := range st.told {
		known[p] = true
	}
	for _, r := range tried {
		if !known[r.Path] {
			paths, known[r.Path] = append(paths, r), true
		}
	}
	above := map[vpath.Path]bool{}
	for _, c := range st.carried {
		for dir := range c.Path.Ancestors() {
			above[dir] = true
		}
	}
	for _, c := range st.carried {
		if !known[c.Path] {
			paths = append(paths, PathResult{
				Path: c.Path, Status: c.Status, Outcome: Present, Reason: "the directory has it already", Implied: above[c.Path],
			})
		}
	}
	slices.SortFunc(paths, func(a, b PathResult) int { return cmp.Compare(a.Path, b.Path) })
	return paths
}
