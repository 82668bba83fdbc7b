package secret

import (
	"net/url"
	"path"
	"slices"
	"strings"
)

// Limit allows requests by their method and path.
type Limit struct {
	Methods []string // in capitals; * is every one
	Path    string   // a pattern: * is a part of a segment, ** any number of segments
}

const anyMethod = "*"

// ParseLimit reads NAME=METHOD[,METHOD…] PATH and returns which secret it is for. Errors: Invalid.
func ParseLimit(text string) (name string, l Limit, err error) {
	name, rest, _ := strings.Cut(text, "=")
	l, err = ParseRequests(rest)
	if err != nil || !isName(name) {
		return "", Limit{}, invalid(text, "want NAME=METHOD[,METHOD…] PATH, such as 'API_KEY=POST /v1/messages'")
	}
	return name, l, nil
}

// ParseRequests reads METHOD[,METHOD…] PATH, as Limit.String writes it. Errors: Invalid.
func ParseRequests(text string) (Limit, error) {
	methods, pattern, _ := strings.Cut(text, " ")
	l := Limit{Methods: strings.Split(methods, ","), Path: pattern}
	for _, m := range l.Methods {
		if m != anyMethod && (m == "" || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "") {
			return Limit{}, invalid(text, "want methods in capitals, or *")
		}
	}
	_, err := path.Match(pattern, "")
	if !strings.HasPrefix(pattern, "/") || err != nil || strings.ContainsAny(pattern, "?#% ") || strings.Count(pattern, anySegments) > maxAny {
		return Limit{}, invalid(text, "want a pattern of a path that begins with /")
	}
	return l, nil
}

// String returns the limit's text without the name, which ParseRequests reads.
func (l Limit) String() string { return strings.Join(l.Methods, ",") + " " + l.Path }

// Allows reports whether a request is within one of the limits; without limits each is. A path
// that two servers could read in different ways is within none.
func Allows(limits []Limit, method string, u *url.URL) bool {
	if len(limits) == 0 {
		return true
	}
	asked := u.EscapedPath()
	if !isPlain(asked) {
		return false
	}
	segments := strings.Split(asked, "/")
	return slices.ContainsFunc(limits, func(l Limit) bool {
		return matches(strings.Split(l.Path, "/"), segments) && (slices.Contains(l.Methods, method) || slices.Contains(l.Methods, anyMethod))
	})
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

// isPlain reports whether a path has one reading: nothing in it is escaped, and no segment is empty
// or stands for another one.
func isPlain(text string) bool {
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
