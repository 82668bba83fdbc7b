// Package nameenc encodes the names of entries and whiteouts for a delta.
//
// A delta is a directory in the form of an OCI image layer, where ".wh.NAME"
// hides NAME of the layers below. The encoding is lossless: every name that a
// program can make is stored under one name, which never means anything else.
// docs/adr/0002-delta-format.md describes the format.
//
// The package is pure. It reads no directory and follows no symbolic link;
// package layer does both.
package nameenc

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Stored names. A name that does not begin with ".wh." is stored as it is. All
// others have one of these forms:
//
//	.wh.NAME            NAME of the layers below is hidden
//	.wh..wh..opq        the whole directory of the layers below is hidden
//	.wh..wh.=NAME       the entry NAME, which itself begins with ".wh."
//	.wh..wh.-NAME       NAME, which itself begins with ".wh.", is hidden
//	.wh..wh.@NAME       the own entry NAME (vpath.OwnName)
//	.wh..wh.!NAME       the own entry NAME of the layers below is hidden
//	.wh..wh.#HASH=      an entry, .wh..wh.#HASH~ a symbolic link to its name
//	.wh..wh.#HASH-      a symbolic link to the name that is hidden
//
// HASH is the hexadecimal SHA-256 of the name. It replaces the name where a form
// above would exceed 255 bytes. The target of a link to an own entry's name
// begins with a slash. A program cannot make a whiteout, since each name that
// begins with ".wh." is stored in the "=" or "#" form.
const (
	prefix    = ".wh."
	ownPrefix = prefix + prefix
	// OpaqueMarker hides all names that the layers below have in its directory.
	OpaqueMarker = ownPrefix + ".opq"
	entryMark    = ownPrefix + "="
	hideMark     = ownPrefix + "-"
	hashMark     = ownPrefix + "#"
	ownMark      = ownPrefix + "@"
	hideOwnMark  = ownPrefix + "!"
)

// Entry returns the stored name of the entry name. If hashed is true, the
// symbolic link NameLink(name) must exist too.
func Entry(name string) (stored string, hashed bool) {
	switch {
	case vpath.IsOwnName(name):
		stored = ownMark + vpath.PlainName(name)
	case strings.HasPrefix(name, prefix):
		stored = entryMark + name
	default:
		return name, false
	}
	if len(stored) <= vpath.NameMax {
		return stored, false
	}
	return hashMark + hashName(name) + "=", true
}

// NameLink returns the stored name of the symbolic link that holds the name of a
// hashed entry.
func NameLink(name string) string { return hashMark + hashName(name) + "~" }

// Whiteout returns the stored name of the whiteout that hides name. If hashed is
// true the whiteout is a symbolic link to LinkTarget(name), else an empty file.
func Whiteout(name string) (stored string, hashed bool) {
	switch {
	case vpath.IsOwnName(name):
		stored = hideOwnMark + vpath.PlainName(name)
	case strings.HasPrefix(name, prefix):
		stored = hideMark + name
	default:
		stored = prefix + name
	}
	if len(stored) <= vpath.NameMax {
		return stored, false
	}
	return hashMark + hashName(name) + "-", true
}

func hashName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// Kind says what a stored name means.
type Kind uint8

// The kinds of stored names.
const (
	KindEntry    Kind = iota // an entry
	KindWhiteout             // hides a name of the layers below
	KindOpaque               // hides all names of the layers below
	KindNameLink             // holds the name of a hashed entry
	KindUnknown              // has our prefix, but no form that we write: ignored
)

// Decode returns the kind of a stored name and the name that it stands for. For a
// hashed form name is empty, and link is the symbolic link in the same directory
// that holds the name: the caller passes its target to NameOf and checks the
// result with Matches.
func Decode(stored string) (kind Kind, name, link string) {
	rest, own := strings.CutPrefix(stored, ownPrefix)
	switch {
	case !strings.HasPrefix(stored, prefix):
		return KindEntry, stored, ""
	case stored == OpaqueMarker:
		return KindOpaque, "", ""
	case !own:
		name = stored[len(prefix):]
		if name == "" || strings.HasPrefix(name, prefix) {
			return KindUnknown, "", ""
		}
		return KindWhiteout, name, ""
	}
	return decodeMarked(stored, rest)
}

// decodeMarked is Decode for ownPrefix followed by rest.
func decodeMarked(stored, rest string) (kind Kind, name, link string) {
	switch body := rest[min(1, len(rest)):]; {
	case strings.HasPrefix(rest, "=") && strings.HasPrefix(body, prefix):
		return KindEntry, body, ""
	case strings.HasPrefix(rest, "-") && strings.HasPrefix(body, prefix):
		return KindWhiteout, body, ""
	case strings.HasPrefix(rest, "@") && body != "":
		return KindEntry, vpath.OwnName(body), ""
	case strings.HasPrefix(rest, "!") && body != "":
		return KindWhiteout, vpath.OwnName(body), ""
	case strings.HasPrefix(rest, "#") && len(body) == 2*sha256.Size+1:
		return decodeHashed(stored)
	}
	return KindUnknown, "", ""
}

func decodeHashed(stored string) (kind Kind, name, link string) {
	last := len(stored) - 1
	switch stored[last] {
	case '=':
		return KindEntry, "", stored[:last] + "~"
	case '-':
		return KindWhiteout, "", stored
	case '~':
		return KindNameLink, "", ""
	}
	return KindUnknown, "", ""
}

// LinkTarget returns the target of the symbolic link that holds name.
func LinkTarget(name string) string {
	if vpath.IsOwnName(name) {
		return "/" + vpath.PlainName(name)
	}
	return name
}

// NameOf returns the name that a link with the given target holds.
func NameOf(target string) string {
	if own, ok := strings.CutPrefix(target, "/"); ok {
		return vpath.OwnName(own)
	}
	return target
}

// Matches reports whether the hashed stored name stands for name.
func Matches(stored, name string) bool {
	if vpath.CheckName(vpath.PlainName(name)) != nil || len(stored) < len(hashMark)+1 {
		return false
	}
	return stored[len(hashMark):len(stored)-1] == hashName(name)
}

// Path returns the path of the entry p relative to the root of a delta.
func Path(p vpath.Path) string {
	if !strings.Contains(string(p), "/"+prefix) && !p.IsOwn() {
		return p.Rel()
	}
	var b strings.Builder
	for name := range p.Elements() {
		if b.Len() > 0 {
			b.WriteByte('/')
		}
		stored, _ := Entry(name)
		b.WriteString(stored)
	}
	return b.String()
}
