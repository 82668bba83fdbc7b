// Package id creates and checks the ids of codebases, sandboxes, sessions and
// transactions: a prefix and 16
// random hexadecimal digits. Names may be reused, ids are not. It proposes names, too.
package id

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Codebase is the id of a codebase: "cb_" and 16 hexadecimal digits.
type Codebase string

// Sandbox is the id of a sandbox: "sb_" and 16 hexadecimal digits.
type Sandbox string

// Session is the id of a session: "sess_" and 16 hexadecimal digits.
type Session string

// Transaction is the id of an apply or an undo: "tx_" and 16 hexadecimal digits.
type Transaction string

// SandboxPrefix begins the id of every sandbox.
const SandboxPrefix = "sb_"

const (
	codebasePrefix = "cb_"
	sessionPrefix  = "sess_"

	transactionPrefix = "tx_"
)

// NewCodebase returns a new id.
func NewCodebase() Codebase { return Codebase(draw(codebasePrefix)) }

// NewSandbox returns a new id.
func NewSandbox() Sandbox { return Sandbox(draw(SandboxPrefix)) }

// NewSession returns a new id.
func NewSession() Session { return Session(draw(sessionPrefix)) }

// NewTransaction returns a new id.
func NewTransaction() Transaction { return Transaction(draw(transactionPrefix)) }

// IsValid reports whether c has the form of an id.
func (c Codebase) IsValid() bool { return isID(codebasePrefix, string(c)) }

// IsValid reports whether s has the form of an id.
func (s Sandbox) IsValid() bool { return isID(SandboxPrefix, string(s)) }

// IsValid reports whether s has the form of an id.
func (s Session) IsValid() bool { return isID(sessionPrefix, string(s)) }

// IsValid reports whether t has the form of an id.
func (t Transaction) IsValid() bool { return isID(transactionPrefix, string(t)) }

// ParseCodebase checks the form of an id. Errors: NotFound, with the text for an unknown id: to a
// caller a malformed id, an unknown one and one of another owner look alike.
func ParseCodebase(text string) (Codebase, error) {
	return Codebase(text), found(Codebase(text).IsValid(), "codebase", text)
}

// ParseSandbox is ParseCodebase for a sandbox.
func ParseSandbox(text string) (Sandbox, error) {
	return Sandbox(text), found(Sandbox(text).IsValid(), "sandbox", text)
}

// ParseSession is ParseCodebase for a session.
func ParseSession(text string) (Session, error) {
	return Session(text), found(Session(text).IsValid(), "session", text)
}

const randomBytes = 8

func draw(prefix string) string {
	var b [randomBytes]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return prefix + hex.EncodeToString(b[:])
}

func isID(prefix, text string) bool {
	digits, ok := strings.CutPrefix(text, prefix)
	return ok && len(digits) == 2*randomBytes && strings.Trim(digits, "0123456789abcdef") == ""
}

func found(is bool, what, text string) error {
	if !is {
		return NoSuch(what, text)
	}
	return nil
}

// NoSuch is the NotFound error for an id, whether it is malformed, unknown or
// another owner's.
func NoSuch(what, id string) error {
	const longest = 64
	if len(id) > longest {
		id = id[:longest] + "…"
	}
	err := errdefs.New(errdefs.NotFound, "%s %s: no such %s", what, vpath.Quote(id), what)
	if r := errdefs.NotFoundReason(what); r != "" {
		err = errdefs.WithReason(err, r)
	}
	return err
}
