// Package gitindex reads and writes the index file of git (gitformat-index(5)): versions 2,
// 3 and 4, SHA-1 and SHA-256. It changes the skip-worktree bits of entries, and replaces whole
// entries. It also knows which paths are indexes, and the paths of their entries.
//
// The file is hostile input: Parse limits its memory and refuses what git would refuse. The
// package is pure: it opens no file and starts no program. A split index is not supported,
// because its entries are in another file.
package gitindex

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's checksum
	"crypto/sha256"
	"encoding/binary"
	"io"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// MaxBytes is the size of the largest index that Parse takes: some 500,000
// entries.
const MaxBytes = 64 << 20

// Sizes of the file's parts, in bytes.
const (
	headerSize = 12
	statSize   = 40 // of an entry: times, device, inode, mode, owner, size
	modeAt     = 24 // of the mode in an entry
	extHead    = 8  // signature and size of an extension
)

// The flags of an entry.
const (
	flagAssumeValid = 0x8000
	flagExtended    = 0x4000
	flagStage       = 0x3000

	extSkipWorktree = 0x4000
)

// Entry is one path of an index.
type Entry struct {
	Path         string // as git has it: relative to the work tree
	Mode         uint32
	Object       string // the id, not in hex
	Stage        int    // 0, or 1 to 3 of a conflict
	SkipWorktree bool
	AssumeValid  bool // git does not look at the file
}

// Index is a parsed index file. It shares the bytes that Parse was given.
type Index struct {
	version    uint32
	hash       int // bytes of an object id
	unchecked  bool
	entries    []entry
	extensions []extension
}

type entry struct {
	fixed    []byte // stat data and object id
	flags    uint16
	extended uint16
	stored   []byte // the name as it is stored, without padding
	path     string
}

type extension struct {
	signature string
	data      []byte
}

// Parse reads a whole index file. Errors: Invalid; Unsupported for a split
// index, an unknown version or a file above MaxBytes.
func Parse(data []byte) (*Index, error) {
	if len(data) > MaxBytes {
		return nil, errdefs.New(errdefs.Unsupported, "git index: larger than %d bytes", MaxBytes)
	}
	if len(data) < headerSize || string(data[:4]) != "DIRC" {
		return nil, invalid("no index file")
	}
	version := binary.BigEndian.Uint32(data[4:])
	if version < 2 || version > 4 {
		return nil, errdefs.New(errdefs.Unsupported, "git index: version %d is unknown (want 2, 3 or 4)", version)
	}
	var err error
	for _, size := range []int{sha1.Size, sha256.Size} {
		unchecked, ok := checkTrailer(data, size)
		if !ok {
			continue
		}
		x := &Index{version: version, hash: size, unchecked: unchecked}
		if err = x.parse(data[headerSize:len(data)-size], binary.BigEndian.Uint32(data[8:])); err == nil {
			return x, nil
		}
	}
	if err == nil {
		err = invalid("the checksum is wrong")
	}
	return nil, err
}

// Read parses what r reads. Errors: those of Parse and of r.
func Read(r io.Reader) (*Index, error) {
	content, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	return Parse(content)
}

// checkTrailer reports whether data ends with its hash, or with zeros, as git
// writes it with index.skipHash.
func checkTrailer(data []byte, size int) (unchecked, ok bool) {
	if len(data) < headerSize+size {
		return false, false
	}
	trailer := data[len(data)-size:]
	if bytes.Equal(trailer, make([]byte, size)) {
		return true, true
	}
	return false, bytes.Equal(trailer, sum(data[:len(data)-size], size))
}

func sum(data []byte, size int) []byte {
	if size == sha256.Size {
		s := sha256.Sum256(data)
		return s[:]
	}
	s := sha1.Sum(data) //nolint:gosec // git's checksum
	return s[:]
}

func (x *Index) parse(body []byte, count uint32) error {
	least := statSize + x.hash + 3
	if uint64(count)*uint64(least) > uint64(len(body)) {
		return invalid("it is shorter than its %d entries", count)
	}
	x.entries = make([]entry, 0, count)
	previous, names := "", 0
	for range count {
		e, rest, err := x.parseEntry(body, previous)
		if err != nil {
			return err
		}
		if names += len(e.path); names > MaxBytes {
			return errdefs.New(errdefs.Unsupported, "git index: its names take more than %d bytes", MaxBytes)
		}
		x.entries = append(x.entries, e)
		body, previous = rest, e.path
	}
	if err := x.parseExtensions(body); err != nil {
		return err
	}
	if slices.ContainsFunc(x.entries, func(e entry) bool { return e.path == "" }) {
		return invalid("a name is empty") // a split index may have such
	}
	return nil
}

func (x *Index) parseEntry(body []byte, previous string) (entry, []byte, error) {
	head := statSize + x.hash + 2
	if len(body) < head {
		return entry{}, nil, invalid("an entry is cut off")
	}
	e := entry{fixed: body[:head-2], flags: binary.BigEndian.Uint16(body[head-2:])}
	if e.flags&flagExtended != 0 {
		if x.version < 3 || len(body) < head+2 {
			return entry{}, nil, invalid("an entry of version %d has extended flags", x.version)
		}
		e.extended = binary.BigEndian.Uint16(body[head:])
		head += 2
	}
	end := 0
	if x.version == 4 {
		strip, n := varint(body[head:])
		if n == 0 || strip > len(previous) {
			return entry{}, nil, invalid("a name takes more than the one before it has")
		}
		name := bytes.IndexByte(body[head+n:], 0)
		if name < 0 {
			return entry{}, nil, invalid("a name has no end")
		}
		e.stored = body[head : head+n+name]
		e.path = previous[:len(previous)-strip] + string(body[head+n:head+n+name])
		end = head + n + name + 1
	} else {
		name := bytes.IndexByte(body[head:], 0)
		if name < 0 {
			return entry{}, nil, invalid("a name has no end")
		}
		e.stored = body[head : head+name]
		e.path = string(e.stored)
		end = padded(head + name)
	}
	if len(e.path) > maxPath || end > len(body) {
		return entry{}, nil, invalid("a name is too long or cut off")
	}
	return e, body[end:], nil
}

// maxPath is the longest path that git can check out (PATH_MAX, linux/limits.h).
const maxPath = 4096

// padded is the size of an entry of version 2 or 3 that has n bytes before the
// one to eight zeros at its end.
func padded(n int) int { return (n + 8) &^ 7 }

// varint reads the variable width integer of version 4; n is 0 if there is none.
func varint(b []byte) (value, n int) {
	for i, c := range b {
		if i > 3 {
			return 0, 0
		}
		value = value<<7 + int(c&0x7f)
		if c&0x80 == 0 {
			return value, i + 1
		}
		value++
	}
	return 0, 0
}

func (x *Index) parseExtensions(body []byte) error {
	for len(body) > 0 {
		if len(body) < extHead {
			return invalid("an extension is cut off")
		}
		size := uint64(binary.BigEndian.Uint32(body[4:]))
		if size > uint64(len(body)-extHead) {
			return invalid("an extension is longer than the file")
		}
		e := extension{signature: string(body[:4]), data: body[extHead : extHead+size]}
		if e.signature == "link" {
			return errdefs.New(errdefs.Unsupported, "git index: it is split (core.splitIndex); its entries are in another file")
		}
		x.extensions = append(x.extensions, e)
		body = body[extHead+size:]
	}
	return nil
}

func invalid(format string, args ...any) error {
	return errdefs.New(errdefs.Invalid, "git index: "+format, args...)
}

func (e *entry) described() Entry {
	return Entry{
		Path: e.path, Mode: e.mode(), Object: string(e.fixed[statSize:]), Stage: int(e.flags & flagStage >> 12), SkipWorktree: e.skipWorktree(),
		AssumeValid: e.flags&flagAssumeValid != 0,
	}
}

func (e *entry) mode() uint32       { return binary.BigEndian.Uint32(e.fixed[modeAt:]) }
func (e *entry) skipWorktree() bool { return e.extended&extSkipWorktree != 0 }

// Entries calls do for each entry, in git's order, with a path in conflict once for each
// stage.
func (x *Index) Entries(do func(Entry)) {
	for i := range x.entries {
		do(x.entries[i].described())
	}
}

// Skip gives each entry the skip-worktree bit that want returns, and reports
// whether that changed any.
func (x *Index) Skip(want func(Entry) bool) (changed bool) {
	for i := range x.entries {
		e := &x.entries[i]
		skip := want(e.described())
		if skip == e.skipWorktree() {
			continue
		}
		changed = true
		e.extended ^= extSkipWorktree
		e.flags &^= flagExtended
		if e.extended != 0 {
			e.flags |= flagExtended
		}
	}
	return changed
}

// derived are the extensions that git makes anew from the entries, the work
// tree and the objects. The last two say where entries lie in the file.
var derived = []string{"TREE", "UNTR", "FSMN", offsetsEnd, offsetTable}

const (
	offsetsEnd  = "EOIE"
	offsetTable = "IEOT"
)

// DropDerived removes the derived extensions, and reports whether there were any. Git
// trusts them without a check: a wrong cache tree would decide the content of the next
// commit, whatever the entries are.
func (x *Index) DropDerived() (changed bool) {
	meant := x.meant()
	changed = len(meant) < len(x.extensions)
	x.extensions = meant
	return changed
}

// Encode returns the index as a file. The version is the one it had, or the
// next that the flags need, as git chooses it.
func (x *Index) Encode() []byte {
	version := x.version
	if version < 4 {
		version = 2
		for i := range x.entries {
			if x.entries[i].flags&flagExtended != 0 {
				version = 3
			}
		}
	}
	out := append([]byte("DIRC"), 0, 0, 0, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(out[4:], version)
	binary.BigEndian.PutUint32(out[8:], uint32(len(x.entries)))
	for i := range x.entries {
		out = x.entries[i].append(out, version)
	}
	for _, e := range x.extensions {
		if e.signature == offsetsEnd || e.signature == offsetTable {
			continue // optional, and the offsets have moved
		}
		out = append(out, e.signature...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(e.data)))
		out = append(out, e.data...)
	}
	if x.unchecked {
		return append(out, make([]byte, x.hash)...)
	}
	return append(out, sum(out, x.hash)...)
}

func (e *entry) append(out []byte, version uint32) []byte {
	begin := len(out)
	out = append(out, e.fixed...)
	out = binary.BigEndian.AppendUint16(out, e.flags)
	if e.flags&flagExtended != 0 {
		out = binary.BigEndian.AppendUint16(out, e.extended)
	}
	out = append(out, e.stored...)
	if version == 4 {
		return append(out, 0)
	}
	n := len(out) - begin
	return append(out, make([]byte, padded(n)-n)...)
}

// Same reports whether a and b are equivalent for git: they differ at most in the stat data
// of their entries, in the version and in derived extensions.
func Same(a, b *Index) bool { return a.Sum() == b.Sum() }

// Sum returns a SHA-256 that is equal for equivalent indexes, see Same.
func (x *Index) Sum() (sum [sha256.Size]byte) {
	const meaning = flagAssumeValid | flagStage
	h := sha256.New()
	field := func(b []byte) {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b)))) // a hash takes everything
		_, _ = h.Write(b)
	}
	for i := range x.entries {
		e := &x.entries[i]
		b := binary.BigEndian.AppendUint32(nil, e.mode())
		b = binary.BigEndian.AppendUint16(b, e.extended)
		b = binary.BigEndian.AppendUint16(b, e.flags&meaning)
		field([]byte(e.path))
		field(append(b, e.fixed[statSize:]...))
	}
	field(nil) // an entry has a path
	for _, e := range x.meant() {
		field([]byte(e.signature))
		field(e.data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// meant are the extensions that are not derived.
func (x *Index) meant() []extension {
	return slices.DeleteFunc(slices.Clone(x.extensions), func(e extension) bool { return slices.Contains(derived, e.signature) })
}
