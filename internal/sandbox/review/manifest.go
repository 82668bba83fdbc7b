package review

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Manifest is what a review showed, by path.
type Manifest map[vpath.Path]ShownEntry

// ShownEntry is what apply makes of a path, as a review showed it.
type ShownEntry struct {
	// Mode is the type and the permission bits that apply would set, 0 for a
	// deletion.
	Mode   uint32 `json:"mode,omitempty"`
	Target string `json:"target,omitempty"` // of a symbolic link, escaped
	SHA256 string `json:"sha256,omitempty"` // of a regular file's content, in hex
	// Added says that the source had nothing there.
	Added bool `json:"added,omitempty"`
	// Settled says that the path was applied or discarded since: with that, what
	// was shown of it is used up. A settled path that is no longer a change was not
	// removed by the sandbox; one that is a change was made again.
	Settled bool `json:"settled,omitempty"`
}

// digestHeader begins the text that a digest is the SHA-256 of. The version
// grows with every change of the form.
const digestHeader = "agentfense review 1\n"

// Digest names the manifest. It covers paths, types, modes, link targets and
// contents: one line for each path, the fields escaped and separated by tabs.
func (m Manifest) Digest() string {
	h := sha256.New()
	h.Write([]byte(digestHeader))
	for _, p := range slices.Sorted(maps.Keys(m)) {
		e := m[p]
		fmt.Fprintf(h, "%s\t%o\t%s\t%s\n", p, e.Mode, e.Target, e.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Encode returns the stored form of the manifest.
func (m Manifest) Encode() ([]byte, error) {
	named := make(map[string]ShownEntry, len(m))
	for p, e := range m {
		named[p.String()] = e
	}
	return json.Marshal(named)
}

// DecodeManifest reads the stored form of the manifest that digest names.
// Errors: Precondition if it is another.
func DecodeManifest(text []byte, digest string) (Manifest, error) {
	var named map[string]ShownEntry
	if err := json.Unmarshal(text, &named); err != nil {
		return nil, errdefs.New(errdefs.Precondition, "review %s: damaged: %w", digest, err)
	}
	m := make(Manifest, len(named))
	for name, e := range named {
		raw, err := vpath.Unescape(name)
		if err != nil {
			return nil, errdefs.New(errdefs.Precondition, "review %s: damaged: %w", digest, err)
		}
		p, err := vpath.Parse(raw)
		if err != nil {
			return nil, errdefs.New(errdefs.Precondition, "review %s: damaged: %w", digest, err)
		}
		m[p] = e
	}
	if m.Digest() != digest {
		return nil, errdefs.New(errdefs.Precondition, "review %s: damaged: its content is another", digest)
	}
	return m, nil
}

// Selection tells what lies at or below one of the paths; no paths: everything
// does. There may be very many paths.
func Selection(paths []vpath.Path) func(vpath.Path) bool {
	if len(paths) == 0 {
		return func(vpath.Path) bool { return true }
	}
	meant := make(map[vpath.Path]bool, len(paths))
	for _, p := range paths {
		meant[p] = true
	}
	return func(p vpath.Path) bool {
		for ; !meant[p]; p = p.Dir() {
			if p.IsRoot() {
				return false
			}
		}
		return true
	}
}

// EntryOf is what apply would make of the change, without a content.
func EntryOf(c *changes.Change, target string) ShownEntry {
	e := ShownEntry{Added: c.Status == changes.Added}
	if c.Status == changes.Deleted {
		return e
	}
	switch mode := c.Info.Mode; mode & record.TypeBits {
	case unix.S_IFDIR:
		e.Mode = mode & (record.TypeBits | record.StickyBits)
	case unix.S_IFLNK:
		e.Mode, e.Target = unix.S_IFLNK, record.HostPath(target).String()
	default:
		e.Mode = mode & (record.TypeBits | record.PermBits)
	}
	return e
}

// IsRegular reports whether the entry has a content.
func (e ShownEntry) IsRegular() bool { return e.Mode&record.TypeBits == unix.S_IFREG }

// hashLimit is the size in bytes up to which a content is hashed. A program
// inside can make a larger file of holes that takes no space and no end of time.
const hashLimit = 16 << 30

// readContent returns what of a regular file fits into most bytes and, with
// whole, the SHA-256 of all of it in hex. A file that grows meanwhile is read as
// far as it went; one beyond hashLimit has no sum.
func readContent(f *os.File, most int64, whole bool) (sum string, head []byte, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", nil, err
	}
	head, err = io.ReadAll(io.LimitReader(f, min(most, info.Size())))
	if err != nil || !whole || info.Size() > hashLimit {
		return "", head, err
	}
	h := sha256.New()
	h.Write(head)
	if _, err := io.Copy(h, io.LimitReader(f, info.Size()-int64(len(head)))); err != nil {
		return "", nil, err
	}
	return hex.EncodeToString(h.Sum(nil)), head, nil
}

// SumOf returns the SHA-256 of a regular file's content in hex.
func SumOf(f *os.File) (string, error) {
	sum, _, err := readContent(f, 0, true)
	return sum, err
}

// ManifestOf is what changes are now. A path that cannot be read is missing: it
// is gone again, from a live sandbox.
func ManifestOf(w *changes.Work, changes []changes.Change) (Manifest, error) {
	m := Manifest{}
	for i := range changes {
		c := &changes[i]
		if !c.IsListed() || c.IsOwn() {
			continue
		}
		e, err := entryNow(w, c)
		switch {
		case err == nil:
			m[c.Path] = e
		case w.Lock != nil || !errdefs.Is(err, errdefs.NotFound) && !errdefs.Is(err, errdefs.Precondition):
			return nil, err
		}
	}
	return m, nil
}

// entryNow is what apply would make of the change, with its content.
func entryNow(w *changes.Work, c *changes.Change) (ShownEntry, error) {
	e := EntryOf(c, "")
	switch e.Mode & record.TypeBits {
	case unix.S_IFLNK:
		target, err := w.Stack.Readlink(c.Path)
		e.Target = record.HostPath(target).String()
		return e, err
	case unix.S_IFREG:
		var err error
		e.SHA256, err = SumOfDelta(w, c.Path)
		return e, err
	}
	return e, nil
}

// SumOfDelta returns the SHA-256 of the delta's file in hex.
func SumOfDelta(w *changes.Work, p vpath.Path) (sum string, err error) {
	var f *os.File
	err = record.AsOwner(func() (err error) {
		f, err = w.Stack.OpenDelta(p)
		return err
	})
	if err != nil {
		return "", err
	}
	defer f.Close()
	if sum, err = SumOf(f); err != nil {
		err = errdefs.New(record.DiskKind(err), "read %s: %w", p, err)
	}
	return sum, err
}
