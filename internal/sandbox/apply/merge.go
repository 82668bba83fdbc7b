package apply

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/merge3"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/keeping"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// A file that the source and the sandbox have changed is merged against the version that the
// sandbox began with. The merged text is made in memory, from the sandbox's version that was
// reviewed and from the source's present one, and is placed like the text of chosen hunks. If the
// source changes again before that, it is a conflict.

// mergeBytes bounds the merged texts of an apply, which are in memory until they are placed.
var mergeBytes = 256 << 20

// mergeAll merges the files that the source and the sandbox have changed.
func (p *plan) mergeAll(ctx context.Context, how conflict.Resolution, name string) error {
	for _, s := range p.steps {
		_, _, inGit := review.GitDirOf(s.Path)
		switch {
		case s.outcome != Conflict:
		case s.kind == conflict.DeleteModify && s.Status == changes.Deleted:
			p.findRename(s)
		case s.kind != conflict.Text:
		case inGit:
			s.conflict(conflict.Binary, "%s, and git's own files are not merged", changedInSource)
		case s.partly:
			s.conflict(conflict.Text, "%s, and of such a file no part can be applied: apply all of it, which merges it", changedInSource)
		default:
			if err := p.merge(ctx, s, how, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// versions are the three versions of a file.
type versions struct {
	base, ours, theirs []byte
	now                *layer.Base // describes the source's file
	sum                string      // SHA-256 of theirs, in hex
	mode               uint32      // merged permission bits
	modes              bool        // both have changed the mode, differently
	missing            bool        // the first version was not stored
	large              bool        // one is larger than a merge can be
}

// merge plans a merge of the file, or says what it is in conflict about.
func (p *plan) merge(ctx context.Context, s *step, how conflict.Resolution, name string) error {
	v, err := p.readVersions(s)
	switch {
	case err != nil:
		return s.cannotRead(err)
	case p.checkSum(s, v.sum) != nil:
		s.stop(ChangedSinceReview, nowElse)
		return nil
	case v.modes && how != conflict.Ours && how != conflict.Theirs:
		s.conflict(conflict.Mode, "its mode was changed in the source and in the sandbox")
		return nil
	}
	r, err := merge3.Lines(ctx, v.base, v.ours, v.theirs)
	if err != nil {
		return errdefs.New(errdefs.Canceled, "merge %s: %w", s.Path, err)
	}
	return p.placeOrStop(s, v, &r, how, name)
}

// placeOrStop decides what the result of a merge means for the file.
func (p *plan) placeOrStop(s *step, v *versions, r *merge3.Result, how conflict.Resolution, name string) error {
	switch {
	case v.missing || v.large || r.Refused != "":
		return p.takeWhole(s, v, how)
	case !r.Clean && how == conflict.Merge:
		s.conflict(conflict.Text, "%s: %s", changedInSource, inConflict(r))
		return nil
	}
	v.resolveModes(s.Info.Mode, how)
	text := resolved(r, how, name)
	switch isSame := bytes.Equal(text, v.ours) && v.mode == v.now.Mode&record.PermBits; {
	case isSame && !v.contradict(r):
		s.isPresent()
	case isSame:
		s.stop(Skipped, sourceWins)
	default:
		return p.placeMerged(s, v, text, len(r.Conflicts))
	}
	return nil
}

// cannotRead says what the conflict is about if a version cannot be read, or returns err.
func (s *step) cannotRead(err error) error {
	switch {
	case errors.Is(err, changes.ErrMoved), errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Precondition):
		s.conflict(conflict.ChangedMeanwhile, "%s, and while it was merged", changedInSource)
	case errdefs.Is(err, errdefs.Denied):
		s.conflict(conflict.NoBase, "%s, and it cannot be read: %s", changedInSource, record.UnwrapErrno(err))
	default:
		return err
	}
	return nil
}

// resolved returns the merged text.
func resolved(r *merge3.Result, how conflict.Resolution, name string) []byte {
	switch {
	case r.Clean:
		return r.Text
	case how == conflict.Ours:
		return r.Ours()
	case how == conflict.Theirs:
		return r.Theirs()
	}
	return r.Markers("source", "sandbox "+name)
}

// sourceWins is why a change is left in the sandbox, although the source's lines are to win.
const sourceWins = "the source's version stays; the sandbox keeps its own"

// inConflict counts the places in conflict.
func inConflict(r *merge3.Result) string {
	text := "the changes of 1 place contradict each other"
	if n := len(r.Conflicts); n > 1 {
		text = fmt.Sprintf("the changes of %d places contradict each other", n)
	}
	if r.Rough {
		text += "; the versions differ in too many places to be compared line by line"
	}
	return text
}

// placeMerged plans that the source gets the text.
func (p *plan) placeMerged(s *step, v *versions, text []byte, conflicts int) error {
	if p.merged += len(text); p.merged > mergeBytes {
		s.conflict(conflict.TooLarge, "%s, and the texts to merge are larger than %d MiB together: apply fewer paths at once", changedInSource, mergeBytes>>20)
		return nil
	}
	mtime, err := unix.TimeToTimespec(time.Now())
	if err != nil {
		return errdefs.New(errdefs.Internal, "apply %s: %w", s.Path, err)
	}
	s.merging = &keeping.Merged{Text: text, Mode: v.mode, Sum: v.sum, Mtime: mtime}
	s.stop(Applied, "")
	s.Base, s.Fresh, s.SameContent, s.moved = v.now, true, false, true
	s.merged, s.conflicts = true, conflicts
	return p.checkParent(s)
}

// takeWhole decides about a file that cannot be merged by lines.
func (p *plan) takeWhole(s *step, v *versions, how conflict.Resolution) error {
	switch {
	case how == conflict.Ours:
		s.stop(Skipped, sourceWins)
	case how == conflict.Theirs:
		return p.overwrite(s)
	case v.missing:
		s.conflict(conflict.NoBase, "%s, and the version that the sandbox began with is not stored", changedInSource)
	case v.large:
		s.conflict(conflict.TooLarge, "%s, and it is larger than %d MiB", changedInSource, merge3.MaxBytes>>20)
	default:
		s.conflict(conflict.Binary, "%s, and it is not a text", changedInSource)
	}
	return nil
}

// readVersions reads the versions of a file. It describes the source's file before it reads it, so
// that the apply notices every later change.
func (p *plan) readVersions(s *step) (*versions, error) {
	v := &versions{}
	var err error
	if v.now, err = p.baseNow(s); err != nil {
		return nil, err
	}
	if v.now.Mode&record.TypeBits != unix.S_IFREG {
		return nil, changes.ErrMoved
	}
	err = rights.AsUser(func() (err error) {
		v.ours, err = v.read(func() (*os.File, error) { return p.work.Stack.OpenSource(s.Path) })
		return err
	})
	if err != nil {
		return nil, err
	}
	err = rights.AsOwner(func() (err error) {
		v.theirs, err = v.read(func() (*os.File, error) { return p.work.Stack.OpenDelta(s.Path) })
		return err
	})
	if err != nil {
		return nil, err
	}
	v.base, err = v.read(func() (*os.File, error) { return p.work.Stack.BaseContent(s.Base) })
	if v.missing = errdefs.Is(err, errdefs.NotFound); err != nil && !v.missing {
		return nil, err
	}
	sum := sha256.Sum256(v.theirs)
	v.sum = hex.EncodeToString(sum[:])
	if len(v.ours) <= layer.ContentMax {
		sum := sha256.Sum256(v.ours)
		v.now.SHA256 = sum[:]
	}
	v.mergeModes(s.Base.Mode, v.now.Mode, s.Info.Mode)
	return v, nil
}

// read reads one version, as far as it can be merged.
func (v *versions) read(open func() (*os.File, error)) ([]byte, error) {
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, merge3.MaxBytes+1))
	v.large = v.large || len(text) > merge3.MaxBytes
	return text, err
}

// mergeModes merges the permission bits.
func (v *versions) mergeModes(base, ours, theirs uint32) {
	base, ours, theirs = base&record.PermBits, ours&record.PermBits, theirs&record.PermBits
	switch {
	case ours == theirs || theirs == base:
		v.mode = ours
	case ours == base:
		v.mode = theirs
	default:
		v.modes = true
	}
}

// contradict reports whether the source and the sandbox have changed the same lines, or the mode.
func (v *versions) contradict(r *merge3.Result) bool { return !r.Clean || v.modes }

// resolveModes decides which mode wins if both have changed it.
func (v *versions) resolveModes(theirs uint32, how conflict.Resolution) {
	switch {
	case v.modes && how == conflict.Theirs:
		v.mode = theirs & record.PermBits
	case v.modes:
		v.mode = v.now.Mode & record.PermBits
	}
}
