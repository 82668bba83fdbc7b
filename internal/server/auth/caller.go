// Package auth decides who a caller is and what it may do.
//
// A caller shows a token, a client certificate, or both; what it may do is the
// least of what they allow. Whatever is shown and not right is refused, never
// passed over for something else that would do. The decisions are pure
// functions of a Caller; which scope a call needs, and what its fields are, the
// service knows.
package auth

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/server/store"
)

// Caller is who makes a request. The zero Caller may do nothing.
type Caller struct {
	Name   string       // for the audit log: "default token", "token NAME", "certificate NAME", "anyone"
	Owner  string       // whose things it reaches; "" with a scope: everybody's
	Scopes store.Scopes // what it may do
	// Operator is set for the default token alone, and for everybody where no
	// token is asked for: what the configuration allows others does not bind it.
	Operator bool
}

// Require checks that the caller has all scopes of need. Errors: Denied.
func (c Caller) Require(need store.Scopes) error {
	if missing := need &^ c.Scopes; missing != 0 {
		return errdefs.New(errdefs.Denied, "%s: scope %s is missing", c.name(), missing)
	}
	return nil
}

// Reach checks that the caller may know of an object of an owner, "" if it has
// none. Errors: NotFound, word for word that of an id which nothing has.
func (c Caller) Reach(owner, what, key string) error {
	if !c.reaches(owner) {
		return id.NoSuch(what, key)
	}
	return nil
}

// ActFor checks that the caller may name owner as the owner of something it
// makes or lists. Errors: Denied for another than its own.
func (c Caller) ActFor(owner string) error {
	if !c.reaches(owner) {
		return errdefs.New(errdefs.Denied, "owner_id %s: %s acts for %s alone", vpath.Escape(owner), c.name(), vpath.Escape(c.Owner))
	}
	return nil
}

// ListFor returns the owner whose things a listing shows that was asked for
// those of asked, "" for all that the caller reaches. Errors: Denied.
func (c Caller) ListFor(asked string) (owner string, err error) {
	if asked == "" {
		return c.Owner, nil
	}
	return asked, c.ActFor(asked)
}

// ReachHost checks that the caller may name files of the server's host, to link
// a directory for example. One that is bound to an owner may not: on the host
// there are everybody's. Errors: Denied.
func (c Caller) ReachHost() error {
	if c.Owner != "" || c.Scopes == 0 {
		return errdefs.New(errdefs.Denied, "%s: is bound to an owner, and may not name files of the server's host", c.name())
	}
	return nil
}

func (c Caller) reaches(owner string) bool {
	return c.Scopes != 0 && (c.Owner == "" || c.Owner == owner)
}

func (c Caller) name() string {
	if c.Name == "" {
		return "nobody"
	}
	return vpath.Escape(c.Name)
}
