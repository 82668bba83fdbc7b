package sandbox

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/hostfile"
	"github.com/agentfense/agentfense/internal/vpath"
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
	err = r.work.sandbox.withReviews(true, func(dir string) error {
		m := manifest{}
		if base != "" {
			if m, err = loadManifest(dir, base); err != nil {
				return err
			}
		}
		if len(replaced) > 0 {
			wanted := selection(replaced)
			maps.DeleteFunc(m, func(p vpath.Path, _ shownEntry) bool { return wanted(p) })
		}
		maps.Copy(m, r.implied)
		for _, f := range files {
			if e, is := r.shown[f.Path]; is {
				m[f.Path] = e
			}
		}
		digest = m.digest()
		return storeManifest(dir, digest, m)
	})
	return digest, err
}

// RememberNow is Remember of all that the sandbox has changed, for one that does
// not run: what its last command left counts as shown.
func (s *Sandbox) RememberNow() (digest string, err error) {
	w, err := s.openToRead()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	changes, err := w.changes(nil, false)
	if err != nil {
		return "", err
	}
	m, err := w.manifestOf(changes)
	if err != nil {
		return "", err
	}
	digest = m.digest()
	return digest, s.withReviews(true, func(dir string) error { return storeManifest(dir, digest, m) })
}

// LastShown returns the digest of what was shown last to the owner of the state
// directory, "" if that is what the sandbox held at the end of its last command.
func (s *Sandbox) LastShown() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.Dir(), reviewsDir, lastShown))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", nil
	case err != nil:
		return "", hostError("sandbox "+s.Name(), err)
	case !IsDigest(string(text)):
		return "", fault.New(fault.Precondition, "sandbox %s: the note of what was shown last is damaged: run agentfense diff %[1]s again", s.Name())
	}
	return string(text), nil
}

// SetLastShown notes what LastShown returns.
func (s *Sandbox) SetLastShown(digest string) error {
	return s.withReviews(digest != "", func(dir string) error {
		if digest == "" {
			return hostfile.IgnoreAbsent(os.Remove(filepath.Join(dir, lastShown)))
		}
		return hostfile.WriteDurably(dir, lastShown, []byte(digest))
	})
}

// withReviews calls do with the directory of reviews, which nobody else changes
// meanwhile. Unless create is set, it does nothing where there is none.
func (s *Sandbox) withReviews(create bool, do func(dir string) error) error {
	dir := filepath.Join(s.Dir(), reviewsDir)
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		if !create {
			return nil
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return hostError("sandbox "+s.Name(), err)
		}
		f, err = os.Open(dir)
	}
	if err != nil {
		return hostError("sandbox "+s.Name(), err)
	}
	defer f.Close()
	if err := flock(f, unix.LOCK_EX); err != nil {
		return hostError("sandbox "+s.Name(), err)
	}
	err = do(dir)
	if err != nil && fault.KindOf(err) == fault.Internal {
		return hostError("sandbox "+s.Name()+": reviews", err)
	}
	return err
}

// reviewed returns what digest names. Errors: Invalid for what is no digest;
// NotFound if it is kept no longer.
func (s *Sandbox) reviewed(digest string) (m manifest, err error) {
	if !IsDigest(digest) {
		return nil, fault.New(fault.Invalid, "review %s: not a digest (want the 64 hex digits that diff prints)", vpath.Quote(digest))
	}
	err = s.withReviews(false, func(dir string) error {
		m, err = loadManifest(dir, digest)
		return err
	})
	if err == nil && m == nil {
		err = noReview(digest)
	}
	return m, err
}

func noReview(digest string) error {
	return fault.New(fault.NotFound, "review %s: not kept, or kept no longer: run diff again", digest)
}

func loadManifest(dir, digest string) (manifest, error) {
	if !IsDigest(digest) {
		return nil, fault.New(fault.Invalid, "review %s: not a digest", vpath.Quote(digest))
	}
	text, err := os.ReadFile(filepath.Join(dir, digest))
	if errors.Is(err, os.ErrNotExist) {
		return nil, noReview(digest)
	}
	if err != nil {
		return nil, err
	}
	return decodeManifest(text, digest)
}

// storeManifest keeps m, and of the others as many as there is room for.
func storeManifest(dir, digest string, m manifest) error {
	text, err := m.encode()
	if err == nil {
		err = hostfile.WriteDurably(dir, digest, text)
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
			return hostfile.IgnoreAbsent(err)
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
		if err == nil && IsDigest(e.Name()) {
			list = append(list, storedReview{e.Name(), info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(list, func(a, b storedReview) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.digest, b.digest))
	})
	return list, nil
}

// settle notes in all that is kept that the paths that done reports were applied or
// discarded.
func (s *Sandbox) settle(done func(vpath.Path) bool) error {
	return s.withReviews(false, func(dir string) error {
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
	text, err := m.encode()
	if err != nil {
		return err
	}
	if err := hostfile.WriteDurably(dir, k.digest, text); err != nil {
		return os.Remove(filepath.Join(dir, k.digest))
	}
	return os.Chtimes(filepath.Join(dir, k.digest), k.at, k.at)
}
