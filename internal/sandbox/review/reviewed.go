package review

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// What reviews of a sandbox showed is kept in this directory of it, a file for
// each digest. The file lastShown holds the digest of what the owner of the
// state directory saw last.
const (
	reviewsDir = "reviews"
	lastShown  = "last"
)

// How much is kept. Of what is more the oldest goes.
const (
	maxReviews     = 32
	maxReviewBytes = 64 << 20
)

// Remember stores what r has shown of files, all of which its caller has shown
// with their contents, and returns its digest. What is not at or below the paths
// of r is as the digest base has it, if that is not "".
// Errors: NotFound, Precondition: base cannot be had; those of the host.
func (r *Review) Remember(base string, files []FileDiff) (string, error) {
	switch {
	case r.work == nil:
		return r.digest, nil
	case len(r.paths) == 0:
		return r.remember("", nil, files)
	}
	return r.remember(base, r.paths, files)
}

// RememberMore is Remember for the page of files that follows those of base.
func (r *Review) RememberMore(base string, files []FileDiff) (string, error) {
	return r.remember(base, nil, files)
}

// remember stores files beside what base has, but for what lies at and below
// replaced.
func (r *Review) remember(base string, replaced []vpath.Path, files []FileDiff) (digest string, err error) {
	err = withReviews(r.work.Sandbox, true, func(dir string) error {
		m := Manifest{}
		if base != "" {
			if m, err = loadManifest(dir, base); err != nil {
				return err
			}
		}
		if len(replaced) > 0 {
			wanted := Selection(replaced)
			maps.DeleteFunc(m, func(p vpath.Path, _ ShownEntry) bool { return wanted(p) })
		}
		maps.Copy(m, r.implied)
		for _, f := range files {
			if e, is := r.shown[f.Path]; is {
				m[f.Path] = e
			}
		}
		digest = m.Digest()
		return storeManifest(dir, digest, m)
	})
	return digest, err
}

// RememberNow is Remember of all that the sandbox has changed, for one that does
// not run: what its last command left counts as shown.
func RememberNow(s *record.Sandbox) (digest string, err error) {
	w, err := changes.OpenToRead(s)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	changes, err := w.Changes(nil, false)
	if err != nil {
		return "", err
	}
	m, err := ManifestOf(w, changes)
	if err != nil {
		return "", err
	}
	digest = m.Digest()
	return digest, withReviews(s, true, func(dir string) error { return storeManifest(dir, digest, m) })
}

// LastShown returns the digest of what was shown last to the owner of the state
// directory, "" if that is what the sandbox held at the end of its last command.
func LastShown(s *record.Sandbox) (string, error) {
	text, err := os.ReadFile(filepath.Join(s.Dir(), reviewsDir, lastShown))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", nil
	case err != nil:
		return "", record.HostError("sandbox "+s.Name(), err)
	case !record.IsDigest(string(text)):
		return "", errdefs.New(errdefs.Precondition, "sandbox %s: the note of what was shown last is damaged: run agentfense diff %[1]s again", s.Name())
	}
	return string(text), nil
}

// SetLastShown notes what LastShown returns.
func SetLastShown(s *record.Sandbox, digest string) error {
	return withReviews(s, digest != "", func(dir string) error {
		if digest == "" {
			return safefs.IgnoreAbsent(os.Remove(filepath.Join(dir, lastShown)))
		}
		return safefs.WriteDurably(dir, lastShown, []byte(digest))
	})
}

// withReviews calls do with the directory of reviews, which nobody else changes
// meanwhile. Unless create is set, it does nothing where there is none.
func withReviews(s *record.Sandbox, create bool, do func(dir string) error) error {
	dir := filepath.Join(s.Dir(), reviewsDir)
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		if !create {
			return nil
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return record.HostError("sandbox "+s.Name(), err)
		}
		f, err = os.Open(dir)
	}
	if err != nil {
		return record.HostError("sandbox "+s.Name(), err)
	}
	defer f.Close()
	if err := record.Flock(f, unix.LOCK_EX); err != nil {
		return record.HostError("sandbox "+s.Name(), err)
	}
	err = do(dir)
	if err != nil && errdefs.KindOf(err) == errdefs.Internal {
		return record.HostError("sandbox "+s.Name()+": reviews", err)
	}
	return err
}

// Reviewed returns what digest names. Errors: Invalid for what is no digest;
// NotFound if it is kept no longer.
func Reviewed(s *record.Sandbox, digest string) (m Manifest, err error) {
	if !record.IsDigest(digest) {
		return nil, errdefs.New(errdefs.Invalid, "review %s: not a digest (want the 64 hex digits that diff prints)", vpath.Quote(digest))
	}
	err = withReviews(s, false, func(dir string) error {
		m, err = loadManifest(dir, digest)
		return err
	})
	if err == nil && m == nil {
		err = noReview(digest)
	}
	return m, err
}

func noReview(digest string) error {
	return errdefs.New(errdefs.NotFound, "review %s: not kept, or kept no longer: run diff again", digest)
}

func loadManifest(dir, digest string) (Manifest, error) {
	if !record.IsDigest(digest) {
		return nil, errdefs.New(errdefs.Invalid, "review %s: not a digest", vpath.Quote(digest))
	}
	text, err := os.ReadFile(filepath.Join(dir, digest))
	if errors.Is(err, os.ErrNotExist) {
		return nil, noReview(digest)
	}
	if err != nil {
		return nil, err
	}
	return DecodeManifest(text, digest)
}

// storeManifest keeps m, and of the others as many as there is room for.
func storeManifest(dir, digest string, m Manifest) error {
	text, err := m.Encode()
	if err == nil {
		err = safefs.WriteDurably(dir, digest, text)
	}
	if err != nil {
		return err
	}
	kept, err := storedReviews(dir)
	if err != nil {
		return err
	}
	bytes := int64(0)
	for i, k := range kept {
		bytes += k.size
		if k.digest == digest || i < maxReviews && bytes <= maxReviewBytes {
			continue
		}
		if err := os.Remove(filepath.Join(dir, k.digest)); err != nil {
			return safefs.IgnoreAbsent(err)
		}
	}
	return nil
}

type storedReview struct {
	digest string
	size   int64
	at     time.Time
}

// storedReviews lists what is kept, the newest first.
func storedReviews(dir string) ([]storedReview, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []storedReview
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && record.IsDigest(e.Name()) {
			list = append(list, storedReview{e.Name(), info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(list, func(a, b storedReview) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.digest, b.digest))
	})
	return list, nil
}

// Settle notes in all that is kept that the paths that done reports were applied or
// discarded.
func Settle(s *record.Sandbox, done func(vpath.Path) bool) error {
	return withReviews(s, false, func(dir string) error {
		kept, err := storedReviews(dir)
		for _, k := range kept {
			err = errors.Join(err, settleIn(dir, k, done))
		}
		return err
	})
}

// settleIn is settle for one. Where there is no room to write, what is kept goes:
// an apply of it then asks for another diff.
func settleIn(dir string, k storedReview, done func(vpath.Path) bool) error {
	m, err := loadManifest(dir, k.digest)
	if err != nil {
		return err
	}
	changed := false
	for p, e := range m {
		if !e.Settled && done(p) {
			e.Settled, changed = true, true
			m[p] = e
		}
	}
	if !changed {
		return nil
	}
	text, err := m.Encode()
	if err != nil {
		return err
	}
	if err := safefs.WriteDurably(dir, k.digest, text); err != nil {
		return os.Remove(filepath.Join(dir, k.digest))
	}
	return os.Chtimes(filepath.Join(dir, k.digest), k.at, k.at)
}
