package vpath

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// ownMark begins the name of an own entry: one that a program created at a path that the policy
// hides. Parse and CheckName accept no name with it, so the own entry and the hidden entry have
// different paths.
const ownMark = "\x00"

// OwnName returns the name of the own entry that a program calls name.
func OwnName(name string) string { return ownMark + name }

// IsOwnName reports whether name is a result of OwnName.
func IsOwnName(name string) bool { return len(name) > 0 && name[0] == ownMark[0] }

// PlainName returns name as a program sees it.
func PlainName(name string) string { return strings.TrimPrefix(name, ownMark) }

// ParseOwn is Parse for stored text with names of own entries, which only agentfense writes.
// Errors: Invalid.
func ParseOwn(text string) (Path, error) {
	p := Path(text)
	plain, err := Parse(string(p.Plain()))
	switch {
	case err != nil:
		return "", err
	case plain != p.Plain() || strings.Count(text, ownMark) != strings.Count(text, "/"+ownMark):
		return "", errdefs.New(errdefs.Invalid, "path %s is not clean", Quote(text))
	}
	return p, nil
}

// IsOwn reports whether p is an own entry or below one.
func (p Path) IsOwn() bool { return strings.IndexByte(string(p), ownMark[0]) >= 0 }

// OwnRoot returns the topmost own entry among p and its ancestors, "" if there is none.
func (p Path) OwnRoot() Path {
	at := strings.IndexByte(string(p), ownMark[0])
	if at < 0 {
		return ""
	}
	if end := strings.IndexByte(string(p[at:]), '/'); end >= 0 {
		return p[:at+end]
	}
	return p
}

// Plain returns p as a program sees it.
func (p Path) Plain() Path {
	if !p.IsOwn() {
		return p
	}
	return Path(strings.ReplaceAll(string(p), ownMark, ""))
}
