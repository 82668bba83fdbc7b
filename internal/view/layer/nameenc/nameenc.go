package layer

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/agentfense/agentfense/internal/vpath"
)

// How names are stored in a delta. A name that does not begin with ".wh." is
// stored as it is; everything that does is ours:
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
// HASH is the hexadecimal SHA-256 of the name; it stands where the forms above
// it would exceed 255 bytes. The link to an own entry's name has a slash before it. No name made inside can become a whiteout, since
// each one that begins with ".wh." is stored under the "=" or "#" form.
const (
	prefix       = ".wh."
	ownPrefix    = prefix + prefix
	opaqueMarker = ownPrefix + ".opq"
	entryMark    = ownPrefix + "="
	hideMark     = ownPrefix + "-"
	hashMark     = ownPrefix + "#"
	ownMark      = ownPrefix + "@"
	hideOwnMark  = ownPrefix + "!"
)

// storedName returns what the entry name is called in a delta. If hashed is
// true, nameBeside(name) must be there too.
func storedName(name string) (stored string, hashed bool) {
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

// nameBeside is the symbolic link that holds the name of a hashed entry.
func nameBeside(name string) string { return hashMark + hashName(name) + "~" }

// whiteoutName returns what hides name. If hashed is true it is a symbolic
// link to the name, else an empty file.
func whiteoutName(name string) (stored string, hashed bool) {
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

// storedKind is what a name found in a delta means.
type storedKind uint8

const (
	storedEntry    storedKind = iota // an entry of the view
	storedWhiteout                   // hides a name of the layers below
	storedOpaque                     // hides all names of the layers below
	storedBeside                     // the name of a hashed entry
	storedUnknown                    // ours, but nothing we write: ignored
)

// parseStored says what the stored name means and which name it is about.
// For a hashed form name is empty and link is the symbolic link in the same
// directory whose target is the name; the caller checks the target with
// isNameOf.
func parseStored(stored string) (kind storedKind, name, link string) {
	rest, own := strings.CutPrefix(stored, ownPrefix)
	switch {
	case !strings.HasPrefix(stored, prefix):
		return storedEntry, stored, ""
	case stored == opaqueMarker:
		return storedOpaque, "", ""
	case !own:
		name = stored[len(prefix):]
		if name == "" || strings.HasPrefix(name, prefix) {
			return storedUnknown, "", ""
		}
		return storedWhiteout, name, ""
	}
	return parseMarked(stored, rest)
}

// parseMarked is parseStored for a name of which rest follows ownPrefix.
func parseMarked(stored, rest string) (kind storedKind, name, link string) {
	switch body := rest[min(1, len(rest)):]; {
	case strings.HasPrefix(rest, "=") && strings.HasPrefix(body, prefix):
		return storedEntry, body, ""
	case strings.HasPrefix(rest, "-") && strings.HasPrefix(body, prefix):
		return storedWhiteout, body, ""
	case strings.HasPrefix(rest, "@") && body != "":
		return storedEntry, vpath.OwnName(body), ""
	case strings.HasPrefix(rest, "!") && body != "":
		return storedWhiteout, vpath.OwnName(body), ""
	case strings.HasPrefix(rest, "#") && len(body) == 2*sha256.Size+1:
		return parseHashed(stored)
	}
	return storedUnknown, "", ""
}

func parseHashed(stored string) (kind storedKind, name, link string) {
	last := len(stored) - 1
	switch stored[last] {
	case '=':
		return storedEntry, "", stored[:last] + "~"
	case '-':
		return storedWhiteout, "", stored
	case '~':
		return storedBeside, "", ""
	}
	return storedUnknown, "", ""
}

// linkOfName is the target of the link that holds a hashed entry's name, and
// nameOfLink is the name in it. A NUL cannot stand in one.
func linkOfName(name string) string {
	if vpath.IsOwnName(name) {
		return "/" + vpath.PlainName(name)
	}
	return name
}

func nameOfLink(target string) string {
	if own, ok := strings.CutPrefix(target, "/"); ok {
		return vpath.OwnName(own)
	}
	return target
}

// isNameOf reports whether name is what the hashed stored name stands for.
func isNameOf(stored, name string) bool {
	if vpath.CheckName(vpath.PlainName(name)) != nil || len(stored) < len(hashMark)+1 {
		return false
	}
	return stored[len(hashMark):len(stored)-1] == hashName(name)
}

// storedPath returns p as a path relative to a delta's root.
func storedPath(p vpath.Path) string {
	if !strings.Contains(string(p), "/"+prefix) && !p.IsOwn() {
		return p.Rel()
	}
	var b strings.Builder
	for name := range p.Elements() {
		if b.Len() > 0 {
			b.WriteByte('/')
		}
		stored, _ := storedName(name)
		b.WriteString(stored)
	}
	return b.String()
}
