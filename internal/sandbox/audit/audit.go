// Package audit keeps what happened to a sandbox: one append-only file per
// sandbox, one JSON object per line, each holding the hash of the one before.
// docs/audit.md is the reference of the format.
//
// The package promises that a record is never glued to another, silently lost
// or silently changed: what a crash or a full disk left behind is accounted for
// by a gap record, and Verify finds edits, removals and a changed order. It
// does not promise to notice that a log was replaced as a whole, with the head
// beside it; for that, keep a Head elsewhere and give it to Verify.
//
// Log writes at once and may be used by several goroutines and by several
// processes on one file (flock). Writer puts a bounded queue and one goroutine
// in front, for callers who must not wait for a disk. Lock order: Writer.mu is
// never held while Log.mu is taken; Log.mu before the file's flock.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// SchemaVersion is the "v" of the records written here.
const SchemaVersion = 1

const (
	maxLine = 4 << 20   // bytes of a record; a longer line is none
	maxText = 512 << 10 // bytes of one escaped text
	maxPath = 1 << 10   // bytes of the escaped path of a refusal
	maxList = 1 << 20   // bytes of the lists of one record, as JSON
)

// Hash is a record's SHA-256: of its line up to and without `,"hash"`.
type Hash [sha256.Size]byte

// String returns h in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// parseHash reads what String writes, and nothing else: a second spelling of a
// hash would be an edit that shows nowhere.
func parseHash(text string) (Hash, bool) {
	var h Hash
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(h) || text != strings.ToLower(text) {
		return Hash{}, false
	}
	return Hash(b), true
}

// Head names a record that a log had as its last at some time. The zero Head
// is that of an empty log.
type Head struct {
	Seq  uint64
	Hash Hash
}

// String returns h as "SEQ:HASH", for ParseHead.
func (h Head) String() string { return fmt.Sprintf("%d:%s", h.Seq, h.Hash) }

// ParseHead reads what Head.String returns. Errors: Invalid.
func ParseHead(text string) (Head, error) {
	number, hash, _ := strings.Cut(text, ":")
	seq, err := strconv.ParseUint(number, 10, 64)
	h, ok := parseHash(hash)
	if err != nil || !ok {
		return Head{}, errdefs.New(errdefs.Invalid, "audit head %q: not SEQ:HASH", text)
	}
	return Head{Seq: seq, Hash: h}, nil
}
