package sandbox

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

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// manifest is what a review showed, by path.
type manifest map[vpath.Path]shownEntry

// shownEntry is what apply makes of a path, as a review showed it.
type shownEntry struct {
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

// digest names the manifest. It covers paths, types, modes, link targets and
// contents: one line for each path, the fields escaped and separated by tabs.
func (m manifest) digest() string {
	h := sha256.New()
	h.Write([]byte(digestHeader))
	for _, p := range slices.Sorted(maps.Keys(m)) {
		e := m[p]
		fmt.Fprintf(h, "%s\t%o\t%s\t%s\n", p, e.Mode, e.Target, e.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// IsDigest reports whether text has the form of a digest.
func IsDigest(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == text
}

// encode returns the stored form of the manifest.
func (m manifest) encode() ([]byte, error) {
	named := make(map[string]shownEntry, len(m))
	for p, e := range m {
		named[p.String()] = e
	}
	return json.Marshal(named)
}

// decodeManifest reads the stored form of the manifest that digest names.
// Errors: Precondition if it is another.
func decodeManifest(text []byte, digest string) (manifest, error) {
	var named map[string]shownEntry
	if err := json.Unmarshal(text, &named); err != nil {
		return nil, fault.New(fault.Precondition, "review %s: damaged: %w", digest, err)
	}
	m := make(manifest, len(named))
	for name, e := range named {
		raw, err := vpath.Unescape(name)
		if err != nil {
			return nil, fault.New(fault.Precondition, "review %s: damaged: %w", digest, err)
		}
		p, err := vpath.Parse(raw)
		if err != nil {
			return nil, fault.New(fault.Precondition, "review %s: damaged: %w", digest, err)
		}
		m[p] = e
	}
	if m.digest() != digest {
		return nil, fault.New(fault.Precondition, "review %s: damaged: its content is another", digest)
	}
	return m, nil
}

// selection tells what lies at or below one of the paths; no paths: everything
// does. There may be very many paths.
func selection(paths []vpath.Path) func(vpath.Path) bool {
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

// entryOf is what apply would make of the change, without a content.
func entryOf(c *change, target string) shownEntry {
	e := shownEntry{Added: c.status == Added}
	if c.status == Deleted {
		return e
	}
	switch mode := c.Info.Mode; mode & typeBits {
	case unix.S_IFDIR:
		e.Mode = mode & (typeBits | stickyBits)
	case unix.S_IFLNK:
		e.Mode, e.Target = unix.S_IFLNK, HostPath(target).String()
	default:
		e.Mode = mode & (typeBits | permBits)
	}
	return e
}

// isRegular reports whether the entry has a content.
func (e shownEntry) isRegular() bool { return e.Mode&typeBits == unix.S_IFREG }

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

// sumOf returns the SHA-256 of a regular file's content in hex.
func sumOf(f *os.File) (string, error) {
	sum, _, err := readContent(f, 0, true)
	return sum, err
}

// manifestOf is what changes are now. A path that cannot be read is missing: it
// is gone again, from a live sandbox.
func (w *work) manifestOf(changes []change) (manifest, error) {
	m := manifest{}
	for i := range changes {
		c := &changes[i]
		if c.status == 0 || c.kept != "" || c.isOwn() {
			continue
		}
		e, err := w.entryNow(c)
		switch {
		case err == nil:
			m[c.Path] = e
		case w.lock != nil || !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Precondition):
			return nil, err
		}
	}
	return m, nil
}

// entryNow is what apply would make of the change, with its content.
func (w *work) entryNow(c *change) (shownEntry, error) {
	e := entryOf(c, "")
	switch e.Mode & typeBits {
	case unix.S_IFLNK:
		target, err := w.stack.Readlink(c.Path)
		e.Target = HostPath(target).String()
		return e, err
	case unix.S_IFREG:
		var err error
		e.SHA256, err = w.sumOfDelta(c.Path)
		return e, err
	}
	return e, nil
}

// sumOfDelta returns the SHA-256 of the delta's file in hex.
func (w *work) sumOfDelta(p vpath.Path) (sum string, err error) {
	var f *os.File
	err = asOwner(func() (err error) {
		f, err = w.stack.OpenDelta(p)
		return err
	})
	if err != nil {
		return "", err
	}
	defer f.Close()
	if sum, err = sumOf(f); err != nil {
		err = fault.New(diskKind(err), "read %s: %w", p, err)
	}
	return sum, err
}
