package allowlist

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Limit allows requests by their method and path.
type Limit struct {
	Methods []string // in capitals; * is every one
	Path    string   // a pattern: * is a part of a segment, ** any number of segments
}

const anyMethod = "*"

// ParseRequests reads METHOD[,METHOD…] PATH, as Limit.String writes it. Errors: Invalid.
func ParseRequests(text string) (Limit, error) {
	methods, pattern, _ := strings.Cut(text, " ")
	l := Limit{Methods: strings.Split(methods, ","), Path: pattern}
	for _, m := range l.Methods {
		if m != anyMethod && (m == "" || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "") {
			return Limit{}, invalidLimit(text, "want METHOD[,METHOD…] PATH, with methods in capitals, or *")
		}
	}
	_, err := path.Match(pattern, "")
	if !strings.HasPrefix(pattern, "/") || err != nil || !isPattern(pattern) || strings.Count(pattern, anySegments) > maxAny {
		return Limit{}, invalidLimit(text, "want METHOD[,METHOD…] PATH, with a pattern of a path that begins with /")
	}
	return l, nil
}

// isPattern reports whether a pattern has no character but those that paths have without an escape
// (RFC 3986, 3.3), and those of path.Match. One with another matches nothing.
func isPattern(text string) bool {
	return strings.IndexFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("/-._~!$&'()*+,=:@[]^", c)
	}) < 0
}

func invalidLimit(text, why string) error {
	return errdefs.New(errdefs.Invalid, "%s: %s", vpath.Quote(text), why)
}

// String returns the limit's text without the name, which ParseRequests reads.
func (l Limit) String() string { return strings.Join(l.Methods, ",") + " " + l.Path }

// Allows reports whether a request is within one of the limits; without limits each is. A path
// that two servers could read in different ways is within none but that of all paths.
func Allows(limits []Limit, method string, u *url.URL) bool {
	if len(limits) == 0 {
		return true
	}
	asked := u.EscapedPath()
	plain := IsPlain(asked)
	segments := strings.Split(asked, "/")
	return slices.ContainsFunc(limits, func(l Limit) bool {
		if !slices.Contains(l.Methods, method) && !slices.Contains(l.Methods, anyMethod) {
			return false
		}
		return l.Path == anyPath || plain && matches(strings.Split(l.Path, "/"), segments)
	})
}

// anyPath is the pattern of all paths, however they are written.
const anyPath = "/" + anySegments

// includes reports whether l allows all that other allows, as far as their texts tell.
func (l Limit) includes(other Limit) bool {
	for _, m := range other.Methods {
		if !slices.Contains(l.Methods, m) && !slices.Contains(l.Methods, anyMethod) {
			return false
		}
	}
	above, everything := strings.CutSuffix(l.Path, "/"+anySegments)
	switch {
	case l.Path == other.Path:
		return true
	case !everything || strings.ContainsAny(above, "*[]^"):
		return false
	}
	return other.Path == above || strings.HasPrefix(other.Path, above+"/")
}

// anySegments is a segment of a pattern that stands for any number of them.
const anySegments = "**"

// Bounds of what a comparison has to try.
const (
	maxAny      = 2
	maxSegments = 200
)

func matches(pattern, segments []string) bool {
	if len(pattern) == 0 {
		return len(segments) == 0
	}
	if pattern[0] == anySegments {
		for i := range len(segments) + 1 {
			if matches(pattern[1:], segments[i:]) {
				return true
			}
		}
		return false
	}
	if len(segments) == 0 {
		return false
	}
	same, err := path.Match(pattern[0], segments[0])
	return err == nil && same && matches(pattern[1:], segments[1:])
}

// IsPlain reports whether a path has one reading: nothing in it is escaped, and no segment is empty
// or stands for another one.
func IsPlain(text string) bool {
	if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "%\\;") {
		return false
	}
	segments := strings.Split(text[1:], "/")
	if len(segments) > maxSegments {
		return false
	}
	for i, s := range segments {
		if s == "." || s == ".." || s == "" && i < len(segments)-1 {
			return false
		}
	}
	return true
}
