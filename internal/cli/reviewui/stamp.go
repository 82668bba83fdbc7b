package reviewui

import (
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// stamp is what was shown of a change. Equal stamps are the same change.
type stamp struct {
	face
	sum string // SHA-256 of the new content, in hex; "" if there is none, or it cannot be read
}

// face is the part of a stamp that a list of names has.
type face struct {
	status   changes.Status
	old, new side
	stale    bool
	leftOut  string
}

type side struct {
	isThere bool
	mode    uint32
	size    int64
	target  string
}

func sideOf(s *review.Side) side {
	if s == nil {
		return side{}
	}
	return side{true, s.Mode, s.SizeBytes, s.Target}
}

func faceOf(f *review.FileDiff) face {
	return face{f.Status, sideOf(f.Old), sideOf(f.New), f.Stale, f.LeftOut}
}

// part is one of the Parts of a change with its content.
type part struct {
	file    review.FileDiff
	content review.Content
}

// compare reads the content of a change, and stamps it.
func compare(r *review.Review, f *review.FileDiff) (parts []part, s stamp, err error) {
	s.face = faceOf(f)
	for _, p := range f.Parts() {
		c, err := r.Content(&p)
		if err != nil {
			return nil, s, err
		}
		if c.SHA256 != "" {
			s.sum = c.SHA256
		}
		parts = append(parts, part{p, c})
	}
	return parts, s, nil
}

// stampsOf stamps what can be applied of a review.
func stampsOf(r *review.Review) (map[vpath.Path]stamp, error) {
	stamps := map[vpath.Path]stamp{}
	files := r.Files()
	for i := range files {
		if files[i].LeftOut != "" {
			continue
		}
		_, s, err := compare(r, &files[i])
		if err != nil {
			return nil, err
		}
		stamps[files[i].Path] = s
	}
	return stamps, nil
}

// before takes a patch back: it returns the old content from the new one. ok is false if the patch
// is not of that content.
func before(content string, hunks []textdiff.Hunk) (old string, ok bool) {
	lines := textdiff.SplitLines(content)
	var out []byte
	at := 0
	for _, h := range hunks {
		start := h.NewStart - 1
		if h.NewLines == 0 {
			start = h.NewStart
		}
		if start < at || start > len(lines) {
			return "", false
		}
		for ; at < start; at++ {
			out = append(out, lines[at]...)
		}
		for _, l := range h.Lines {
			if l.Op != textdiff.Delete {
				if at >= len(lines) || lines[at] != l.Text {
					return "", false
				}
				at++
			}
			if l.Op != textdiff.Insert {
				out = append(out, l.Text...)
			}
		}
	}
	for ; at < len(lines); at++ {
		out = append(out, lines[at]...)
	}
	return string(out), true
}
