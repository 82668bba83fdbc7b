// Package manifest notes what a person was shown of a sandbox's changes: the type, mode and
// content of each path, under a digest. Apply takes what a manifest names and nothing else.
// Manifests are kept in the sandbox's directory.
package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
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
	"github.com/agentfense/agentfense/internal/sandbox/rights"
)

// Manifest is what a review showed, by path.
type Manifest map[vpath.Path]Entry

// Entry is what apply makes of a path, as a review showed it.
type Entry struct {
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
	named := make(map[string]Entry, len(m))
	for p, e := range m {
		named[p.String()] = e
	}
	return json.Marshal(named)
}

// Decode reads the stored form of the manifest that digest names.
// Errors: Precondition if it is another.
func Decode(text []byte, digest string) (Manifest, error) {
	var named map[string]Entry
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

// EntryOf is what apply would make of the change, without a content.
func EntryOf(c *changes.Change, target string) Entry {
	e := Entry{Added: c.Status == changes.Added}
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
func (e Entry) IsRegular() bool { return e.Mode&record.TypeBits == unix.S_IFREG }

// hashLimit is the size in bytes up to which a content is hashed. A program
// inside can make a larger file of holes that takes no space and no end of time.
const hashLimit = 16 << 30

// ReadContent returns what of a regular file fits into most bytes and, with
// whole, the SHA-256 of all of it in hex. A file that grows meanwhile is read as
// far as it went; one beyond hashLimit has no sum.
func ReadContent(f *os.File, most int64, whole bool) (sum string, head []byte, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", nil, err
	}
	head = make([]byte, min(most, info.Size()))
	n, err := io.ReadFull(f, head)
	head = head[:n]
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // it shrank
	}
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
	sum, _, err := ReadContent(f, 0, true)
	return sum, err
}

// Of is what changes are now. A path that cannot be read is missing: it
// is gone again, from a live sandbox.
func Of(w *changes.Work, changes []changes.Change) (Manifest, error) {
	m := Manifest{}
	for i := range changes {
		c := &changes[i]
		if !c.IsListed() || c.IsOwn() {
			continue
		}
		e, err := EntryNow(w, c)
		switch {
		case err == nil:
			m[c.Path] = e
		case w.Lock != nil || !errdefs.Is(err, errdefs.NotFound) && !errdefs.Is(err, errdefs.Precondition):
			return nil, err
		}
	}
	return m, nil
}

// EntryNow is what apply would make of the change, with its content.
func EntryNow(w *changes.Work, c *changes.Change) (Entry, error) {
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
	err = rights.AsOwner(func() (err error) {
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
