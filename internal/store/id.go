package store

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// CodebaseID names a codebase for ever: "cb_" and 16 hex digits.
type CodebaseID string

// SandboxID names a sandbox for ever: "sb_" and 16 hex digits.
type SandboxID string

// SessionID names a session for ever: "sess_" and 16 hex digits.
type SessionID string

const (
	codebasePrefix = "cb_"
	sandboxPrefix  = "sb_"
	sessionPrefix  = "sess_"
)

// NewCodebaseID returns an id that nothing has.
func NewCodebaseID() CodebaseID { return CodebaseID(newID(codebasePrefix)) }

// NewSandboxID returns an id that nothing has.
func NewSandboxID() SandboxID { return SandboxID(newID(sandboxPrefix)) }

// NewSessionID returns an id that nothing has.
func NewSessionID() SessionID { return SessionID(newID(sessionPrefix)) }

// ParseCodebaseID checks the form of an id. Errors: NotFound, with the text
// that an unknown one gets: to a caller a malformed, an unknown and a foreign
// id are alike.
func ParseCodebaseID(s string) (CodebaseID, error) {
	return CodebaseID(s), checkID(codebasePrefix, "codebase", s)
}

// ParseSandboxID is as ParseCodebaseID.
func ParseSandboxID(s string) (SandboxID, error) {
	return SandboxID(s), checkID(sandboxPrefix, "sandbox", s)
}

// ParseSessionID is as ParseCodebaseID.
func ParseSessionID(s string) (SessionID, error) {
	return SessionID(s), checkID(sessionPrefix, "session", s)
}

const idBytes = 8

func newID(prefix string) string {
	var b [idBytes]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

func checkID(prefix, what, s string) error {
	if !isID(prefix, s) {
		return NoSuch(what, s)
	}
	return nil
}

func isID(prefix, s string) bool {
	digits, ok := strings.CutPrefix(s, prefix)
	return ok && len(digits) == 2*idBytes && strings.Trim(digits, "0123456789abcdef") == ""
}

// NoSuch is the NotFound error for an id of a codebase, sandbox or session,
// whether it is malformed, unknown or another owner's.
func NoSuch(what, id string) error {
	const longest = 64
	if len(id) > longest {
		id = id[:longest] + "…"
	}
	return fault.New(fault.NotFound, "%s %s: no such %s", what, vpath.Quote(id), what)
}
