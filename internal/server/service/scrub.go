package service

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// scrub removes the host's paths from a text for a client.
func (s *Service) scrub(text string) string {
	text = hide(text, s.home.Dir(), "(state)")
	return strings.ToValidUTF8(s.hidden.scrub(text), "\uFFFD")
}

// hide replaces a path of the host, in each form in which errors contain it.
func hide(text, path, instead string) string {
	for _, form := range []string{path, vpath.Escape(path), strings.Trim(vpath.Quote(path), `"`)} {
		text = hideForm(text, form, instead)
	}
	return text
}

// hideForm replaces a path, but not the beginning of a longer name. If it is unclear where the name
// ends, it replaces it.
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

// nameGoesOn reports whether a name continues in after. A period ends a name unless more follows.
func nameGoesOn(after string) bool {
	r, _ := utf8.DecodeRuneInString(strings.TrimLeft(after, "."))
	return r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// hidden are the directories of the host that no client may see: the linked ones, and that of the
// codebases.
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
