// Package vpath has the path inside a workspace: bytes, absolute, cleaned.
//
// A Path alone never names a file of the host; a directory descriptor and a Path do. The package
// does no I/O.
package vpath

import (
	"iter"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Path is an absolute, cleaned path inside a workspace: "/" or "/a/b". Its
// elements are arbitrary bytes except NUL and '/'; an own entry's name begins
// with a mark, see OwnName.
type Path string

// Root is the workspace itself.
const Root Path = "/"

// NameMax is the longest element in bytes (NAME_MAX, linux/limits.h).
const NameMax = 255

// Parse returns the Path that s names. A missing leading "/" means relative to
// the root; "." elements and repeated or trailing slashes are dropped.
// Errors: Invalid for "..", NUL and an element above NameMax.
func Parse(s string) (Path, error) {
	var b strings.Builder
	for element := range strings.SplitSeq(s, "/") {
		if element == "" || element == "." {
			continue
		}
		if err := CheckName(element); err != nil {
			return "", errdefs.New(errdefs.Invalid, "path %s: %w", Quote(s), err)
		}
		b.WriteByte('/')
		b.WriteString(element)
	}
	if b.Len() == 0 {
		return Root, nil
	}
	return Path(b.String()), nil
}

// CheckName refuses what cannot be one element of a path: empty, ".", "..",
// and names with '/', NUL or more than NameMax bytes. Errors: Invalid.
func CheckName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return errdefs.New(errdefs.Invalid, "name %q is not allowed", name)
	case len(name) > NameMax:
		return errdefs.New(errdefs.Invalid, "name of %d bytes is longer than %d", len(name), NameMax)
	case strings.ContainsAny(name, "/\x00"):
		return errdefs.New(errdefs.Invalid, "name %s contains a slash or a NUL", Quote(name))
	}
	return nil
}

// IsRoot reports whether p is the workspace itself.
func (p Path) IsRoot() bool { return p == Root }

// Child returns the path of name inside p. The caller has checked name.
func (p Path) Child(name string) Path {
	if p == Root {
		return Path("/" + name)
	}
	return p + "/" + Path(name)
}

// Dir returns p's parent; the root is its own parent.
func (p Path) Dir() Path {
	i := strings.LastIndexByte(string(p), '/')
	if i <= 0 {
		return Root
	}
	return p[:i]
}

// Base returns p's last element, "" for the root.
func (p Path) Base() string {
	return string(p[strings.LastIndexByte(string(p), '/')+1:])
}

// Rel returns p without its leading slash, "." for the root, for *at system calls on a descriptor
// of the workspace.
func (p Path) Rel() string {
	if p == Root {
		return "."
	}
	return string(p[1:])
}

// Within reports whether p is dir or below it.
func (p Path) Within(dir Path) bool {
	if dir == Root || p == dir {
		return true
	}
	return len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// Rebase returns p with its ancestor from replaced by to. p must be within from.
func (p Path) Rebase(from, to Path) Path {
	rest := strings.TrimPrefix(string(p[len(from):]), "/")
	if from == Root {
		rest = string(p[1:])
	}
	if rest == "" {
		return to
	}
	return to.Child(rest)
}

// Elements returns the names of p from the root down; none for the root.
func (p Path) Elements() iter.Seq[string] {
	return func(yield func(string) bool) {
		if p == Root {
			return
		}
		for e := range strings.SplitSeq(string(p[1:]), "/") {
			if !yield(e) {
				return
			}
		}
	}
}

// Ancestors returns the proper ancestors of p, the root first.
func (p Path) Ancestors() iter.Seq[Path] {
	return func(yield func(Path) bool) {
		if p == Root {
			return
		}
		if !yield(Root) {
			return
		}
		for i := 1; i < len(p); i++ {
			if p[i] == '/' && !yield(p[:i]) {
				return
			}
		}
	}
}

// String returns p escaped for people and logs, see Escape and Plain.
func (p Path) String() string { return Escape(string(p.Plain())) }
