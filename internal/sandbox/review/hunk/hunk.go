// Package hunk names the parts of a change that an apply can take by themselves, as `git add -p`
// does: the hunks of a text file, its mode, or the change as a whole. A name is derived from
// what the part is about, so that it never means something else after the sandbox went on.
//
// Only a modified regular file that is shown as text has parts. What is added, deleted, binary, of
// another type, or part of a git directory is one unit. The package does not apply anything.
package hunk

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// Set are the ids of a change and its parts.
type Set struct {
	// Whole is the id of all of the change; "" if the change cannot be chosen by id: no apply takes
	// it, or its content is not known.
	Whole string
	Mode  string // of the change of the mode, if the content has hunks, too
	Text  []Hunk // of the content, in the order of the file
}

// Hunk is a part of a text.
type Hunk struct {
	textdiff.Hunk
	ID string
	// Pieces are what the hunk can be split into, nil if it has only one run of changed lines.
	Pieces []Hunk
}

// HasParts reports whether an apply can take a part of the change.
func (s *Set) HasParts() bool { return len(s.Text) > 0 }

// Of returns the ids of a change with the content c.
func Of(f *review.FileDiff, c *review.Content) Set {
	if f.LeftOut != "" || f.Own {
		return Set{}
	}
	u := unit{path: f.Path, status: f.Status, sum: c.SHA256}
	if f.Old != nil {
		u.oldMode = f.Old.Mode
	}
	if f.New != nil {
		u.newMode, u.target = f.New.Mode, f.New.Target
	}
	if c.IsShown() {
		u.hunks = c.Hunks
	}
	return u.set()
}

// unit is what ids are derived from.
type unit struct {
	path             vpath.Path
	status           changes.Status
	oldMode, newMode uint32 // 0 if there is none
	target           string // of a symbolic link
	sum              string // SHA-256 of the new content in hex
	hunks            []textdiff.Hunk
}

func (u *unit) set() Set {
	isFile := u.newMode&record.TypeBits == unix.S_IFREG
	if isFile && u.sum == "" {
		return Set{}
	}
	s := Set{Whole: u.whole()}
	_, _, inGit := review.GitDirOf(u.path)
	if u.status != changes.Modified || !isFile || inGit || len(u.hunks) == 0 {
		return s
	}
	if permissions(u.oldMode) != permissions(u.newMode) {
		s.Mode = id(u.path, func(w io.Writer) {
			fmt.Fprintf(w, "mode\n%o\n%o\n", permissions(u.oldMode), permissions(u.newMode))
		})
	}
	for _, h := range u.hunks {
		part := Hunk{Hunk: h, ID: textID(u.path, h)}
		if pieces := textdiff.Split(h); len(pieces) > 1 {
			for _, piece := range pieces {
				part.Pieces = append(part.Pieces, Hunk{Hunk: piece, ID: textID(u.path, piece)})
			}
		}
		s.Text = append(s.Text, part)
	}
	return s
}

// permissions are the bits of a mode that an apply sets.
func permissions(mode uint32) uint32 {
	if record.IsDir(mode) {
		return mode & record.StickyBits
	}
	return mode & record.PermBits
}

func (u *unit) whole() string {
	mode := u.newMode&record.TypeBits | permissions(u.newMode)
	if u.newMode&record.TypeBits == unix.S_IFLNK {
		mode = unix.S_IFLNK
	}
	return id(u.path, func(w io.Writer) {
		fmt.Fprintf(w, "whole\n%s\n%o\n%q\n%s\n", u.status, mode, u.target, u.sum)
	})
}

// textID names a hunk by its lines and by its first line in the new file. So the id stays while
// other hunks of the file are applied, which changes the numbers of the old lines only.
func textID(p vpath.Path, h textdiff.Hunk) string {
	return id(p, func(w io.Writer) {
		fmt.Fprintf(w, "text\n%d\n", h.NewStart)
		for _, l := range h.Lines {
			fmt.Fprintf(w, "%c%s", l.Op, l.Text)
			if !strings.HasSuffix(l.Text, "\n") {
				fmt.Fprint(w, "\n\\\n")
			}
		}
	})
}

const (
	keyDigits  = 12
	restDigits = 40
)

// id returns the id of the part of the change at p that text describes: digits of the SHA-256 of
// the path, so that an apply finds the change, and of the path with the text. 160 bits of the
// latter are enough against a program that looks for two texts with one id.
func id(p vpath.Path, text func(io.Writer)) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00", p)
	text(h)
	return keyOf(p) + "-" + hex.EncodeToString(h.Sum(nil))[:restDigits]
}

// keyOf is what the ids of the change at p begin with.
func keyOf(p vpath.Path) string {
	sum := sha256.Sum256([]byte(p))
	return hex.EncodeToString(sum[:])[:keyDigits]
}

var isID = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf(`^[0-9a-f]{%d}-[0-9a-f]{%d}$`, keyDigits, restDigits))
})

// byKey returns the ids by what they begin with. Errors: Invalid.
func byKey(ids []string) (map[string]map[string]bool, error) {
	keys := map[string]map[string]bool{}
	for _, given := range ids {
		if !isID().MatchString(given) {
			return nil, errdefs.New(errdefs.Invalid, "hunk %s: not an id (want the %d characters that diff --json or the API shows)", vpath.Quote(given), keyDigits+1+restDigits)
		}
		key := given[:keyDigits]
		if keys[key] == nil {
			keys[key] = map[string]bool{}
		}
		keys[key][given] = true
	}
	return keys, nil
}
