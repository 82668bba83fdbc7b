package manifest

import (
	"cmp"
	"errors"
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
	maxStored      = 32
	maxStoredBytes = 64 << 20
)

// Store changes what the digest base names, "" for nothing, stores it and returns its
// digest. Errors: NotFound, Precondition: base cannot be had; those of the host.
func Store(s *record.Sandbox, base string, change func(Manifest)) (digest string, err error) {
	err = withManifests(s, true, func(dir string) error {
		m := Manifest{}
		if base != "" {
			if m, err = load(dir, base); err != nil {
				return err
			}
		}
		change(m)
		digest = m.Digest()
		return store(dir, digest, m)
	})
	return digest, err
}

// StoreNow stores all that the sandbox has changed, for one that does not run: what its
// last command left counts as shown.
func StoreNow(s *record.Sandbox) (digest string, err error) {
	w, err := changes.OpenToRead(s)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	changes, err := w.Changes(nil, false)
	if err != nil {
		return "", err
	}
	m, err := Of(w, changes)
	if err != nil {
		return "", err
	}
	digest = m.Digest()
	return digest, withManifests(s, true, func(dir string) error { return store(dir, digest, m) })
}

// LastShown returns the digest of what was shown last to the owner of the state
// directory, "" if that is what the sandbox held at the end of its last command.
func LastShown(s *record.Sandbox) (string, error) {
	text, err := os.ReadFile(filepath.Join(s.ChangesDir(), reviewsDir, lastShown))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", nil
	case err != nil:
		return "", record.HostError("sandbox "+s.Name(), err)
	case !record.IsDigest(string(text)):
		return "", errdefs.New(errdefs.Precondition, "sandbox %s: the note of what was shown last is damaged; look at the changes again%s", s.Name(), errdefs.Command("diff "+s.Ref()))
	}
	return string(text), nil
}

// SetLastShown notes what LastShown returns.
func SetLastShown(s *record.Sandbox, digest string) error {
	return withManifests(s, digest != "", func(dir string) error {
		if digest == "" {
			return safefs.IgnoreAbsent(os.Remove(filepath.Join(dir, lastShown)))
		}
		return safefs.WriteDurably(dir, lastShown, []byte(digest))
	})
}

// withManifests calls do with the directory of reviews, which nobody else changes
// meanwhile. Unless create is set, it does nothing where there is none.
func withManifests(s *record.Sandbox, create bool, do func(dir string) error) error {
	dir := filepath.Join(s.ChangesDir(), reviewsDir)
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

// Load returns what digest names. Errors: Invalid for what is no digest;
// NotFound if it is kept no longer.
func Load(s *record.Sandbox, digest string) (m Manifest, err error) {
	if !record.IsDigest(digest) {
		return nil, errdefs.New(errdefs.Invalid, "review %s: not a digest (want the 64 hex digits that diff prints)", vpath.Quote(digest))
	}
	err = withManifests(s, false, func(dir string) error {
		m, err = load(dir, digest)
		return err
	})
	if err == nil && m == nil {
		err = notStored(digest)
	}
	return m, err
}

func notStored(digest string) error {
	return errdefs.New(errdefs.NotFound, "review %s: not kept, or kept no longer: run diff again", digest)
}

func load(dir, digest string) (Manifest, error) {
	if !record.IsDigest(digest) {
		return nil, errdefs.New(errdefs.Invalid, "review %s: not a digest", vpath.Quote(digest))
	}
	text, err := os.ReadFile(filepath.Join(dir, digest))
	if errors.Is(err, os.ErrNotExist) {
		return nil, notStored(digest)
	}
	if err != nil {
		return nil, err
	}
	return Decode(text, digest)
}

// store keeps m, and of the others as many as there is room for.
func store(dir, digest string, m Manifest) error {
	text, err := m.Encode()
	if err == nil {
		err = safefs.WriteDurably(dir, digest, text)
	}
	if err != nil {
		return err
	}
	kept, err := stored(dir)
	if err != nil {
		return err
	}
	bytes := int64(0)
	for i, k := range kept {
		bytes += k.size
		if k.digest == digest || i < maxStored && bytes <= maxStoredBytes {
			continue
		}
		if err := os.Remove(filepath.Join(dir, k.digest)); err != nil {
			return safefs.IgnoreAbsent(err)
		}
	}
	return nil
}

type storedManifest struct {
	digest string
	size   int64
	at     time.Time
}

// stored lists what is kept, the newest first.
func stored(dir string) ([]storedManifest, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []storedManifest
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && record.IsDigest(e.Name()) {
			list = append(list, storedManifest{e.Name(), info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(list, func(a, b storedManifest) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.digest, b.digest))
	})
	return list, nil
}

// Settle notes in all that is kept that the paths that done reports were applied or
// discarded.
func Settle(s *record.Sandbox, done func(vpath.Path) bool) error {
	return withManifests(s, false, func(dir string) error {
		kept, err := stored(dir)
		for _, k := range kept {
			err = errors.Join(err, settleIn(dir, k, done))
		}
		return err
	})
}

// settleIn is settle for one. Where there is no room to write, what is kept goes:
// an apply of it then asks for another diff.
func settleIn(dir string, k storedManifest, done func(vpath.Path) bool) error {
	m, err := load(dir, k.digest)
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
