package service

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// scrub takes the host's paths out of a text for a client.
func (s *Service) scrub(text string) string {
	text = hide(text, s.home.Dir(), "(state)")
	return strings.ToValidUTF8(s.hidden.scrub(text), "\uFFFD")
}

// hide puts other words in the place of a path of the host, in each form that
// errors have it in.
func hide(text, path, instead string) string {
	for _, form := range []string{path, vpath.Escape(path), strings.Trim(vpath.Quote(path), `"`)} {
		text = hideForm(text, form, instead)
	}
	return text
}

// hideForm lets alone what only begins like the path: another name that is
// longer. In doubt where the name ends, it is hidden.
func hideForm(text, path, instead string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, path)
		b.WriteString(before)
		switch {
		case !found:
			return b.String()
		case nameGoesOn(after):
			b.WriteString(path)
		default:
			b.WriteString(instead)
		}
		text = after
	}
}

// nameGoesOn reports whether a name does not end where after begins, a point
// being the end of a sentence unless more comes.
func nameGoesOn(after string) bool {
	r, _ := utf8.DecodeRuneInString(strings.TrimLeft(after, "."))
	return r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// hidden are directories of the host whose names no client is told: those that
// are linked, and that of the codebases.
type hidden struct {
	mu    sync.Mutex
	paths []string
}

func (h *hidden) add(path string) {
	if path == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.paths, path) {
		h.paths = append(h.paths, path)
	}
}

func (h *hidden) scrub(text string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, path := range h.paths {
		text = hide(text, path, "(codebase)")
	}
	return text
}
