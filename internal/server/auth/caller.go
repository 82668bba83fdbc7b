// Package auth decides who a caller is and what it may do.
//
// A caller has a token, a client certificate, or both, and may do what all of them allow. An
// invalid credential is refused, even beside a valid one. The decisions are pure functions of a
// Caller. Package service knows which scope a call needs.
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
	Owner  string       // it reaches the objects of this owner; "" with a scope: of all owners
	Scopes store.Scopes // what it may do
	// Operator is set for the default token, and for all callers of a server with NoAuth. The
	// limits that the configuration sets for others do not apply to it.
	Operator bool
}

// Require checks that the caller has all scopes of need. Errors: Denied.
func (c Caller) Require(need store.Scopes) error {
	if missing := need &^ c.Scopes; missing != 0 {
		return errdefs.New(errdefs.Denied, "%s: scope %s is missing", c.name(), missing)
	}
	return nil
}

// Reach checks that the caller may know of an object of an owner; "": of no owner. Errors:
// NotFound, with the text for an unknown id.
func (c Caller) Reach(owner, what, key string) error {
	if !c.reaches(owner) {
		return id.NoSuch(what, key)
	}
	return nil
}

// ActFor checks that the caller may create or list objects of owner. Errors: Denied.
func (c Caller) ActFor(owner string) error {
	if !c.reaches(owner) {
		return errdefs.New(errdefs.Denied, "owner_id %s: %s may act only for %s", vpath.Escape(owner), c.name(), vpath.Escape(c.Owner))
	}
	return nil
}

// ListFor returns the owner of the objects of a listing; asked is the owner that the request names,
// "": all that the caller reaches. Errors: Denied.
func (c Caller) ListFor(asked string) (owner string, err error) {
	if asked == "" {
		return c.Owner, nil
	}
	return asked, c.ActFor(asked)
}

// ReachHost checks that the caller may name files of the server's host, for example to link a
// directory. A caller with an owner may not, because the host has files of all owners. Errors:
// Denied.
func (c Caller) ReachHost() error {
	if c.Owner != "" || c.Scopes == 0 {
		return errdefs.New(errdefs.Denied, "%s: bound to an owner, so it may not name files of the server's host", c.name())
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
