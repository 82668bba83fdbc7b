// Package audit stores the events of a sandbox: one append-only file per sandbox, with one
// JSON object per line, each with the hash of the previous one. docs/audit.md is the
// reference of the format.
//
// The package promises that records are not merged, and not lost or changed silently: a gap
// record accounts for the effects of a crash or a full disk, and Verify finds edits,
// removals and a changed order. It cannot notice that a log was replaced together with its
// head file; to detect that, store a Head elsewhere and pass it to Verify.
//
// Log writes at once. Several goroutines may use it, and several processes may use one file
// (flock). Writer adds a bounded queue and a goroutine, for callers that must not wait for
// a disk. Lock order: Writer.mu is never held while Log.mu is taken; Log.mu before the
// file's flock.
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
	maxLine = 4 << 20   // bytes of a record; a longer line is malformed
	maxText = 512 << 10 // bytes of one escaped text
	maxPath = 1 << 10   // bytes of the escaped path of a refusal
	maxList = 1 << 20   // bytes of the lists of one record, as JSON
)

// Hash is a record's SHA-256: of its line up to and without `,"hash"`.
type Hash [sha256.Size]byte

// String returns h in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// parseHash accepts only the form that String writes: another spelling would be an edit
// that Verify does not find.
func parseHash(text string) (Hash, bool) {
	var h Hash
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(h) || text != strings.ToLower(text) {
		return Hash{}, false
	}
	return Hash(b), true
}

// Head identifies the last record of a log at some time. The zero Head is that of an empty
// log.
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
