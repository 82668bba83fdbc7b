package reviewui

import (
	"fmt"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

func (m *model) takeApplied(a applied) {
	for _, path := range a.differs {
		m.unstage(path)
	}
	switch {
	case errdefs.Is(a.err, errdefs.NotFound) || len(a.differs) > 0:
		m.status = "nothing was applied, because the sandbox changed what you staged; look again"
	case a.err != nil && len(a.result.Paths) == 0:
		m.read("Nothing was applied", []string{a.err.Error()})
	default:
		title, lines := m.outcome(a)
		if m.status = title; len(lines) > 0 {
			m.read(title, lines)
		}
	}
}

// outcome says how an apply went.
func (m *model) outcome(a applied) (title string, lines []string) {
	r := &a.result
	title = fmt.Sprintf("Applied %s", review.Count(r.Count(apply.Applied), "change"))
	if a.err != nil {
		lines = append(lines, a.err.Error(), "")
	}
	if r.Codebase != "" {
		lines = append(lines, "They are in codebase "+r.Codebase+": agentfense codebase pull "+r.Codebase+" DIR")
	}
	if n := inPart(r.Paths); n > 0 {
		title += fmt.Sprintf("; of %s only a part: the rest is in the sandbox", review.Count(n, "file"))
	}
	for _, p := range r.Paths {
		if p.Merged {
			lines = append(lines, "merged with what changed in the source: "+m.nameOf(p.Path))
		}
		switch {
		case p.Outcome == apply.Applied && !p.Implied:
			m.forget(p.Path)
			if p.OfHunks > 0 && m.path == p.Path { // show the rest
				m.path = ""
			}
		case p.Outcome == apply.ChangedSinceReview:
			m.unstage(p.Path)
		}
		if p.Outcome != apply.Applied && p.Outcome != apply.Present && !p.Implied {
			lines = append(lines, fmt.Sprintf("%s: %s: %s", outcomes[p.Outcome], m.nameOf(p.Path), p.Reason))
		}
	}
	return title, lines
}

// inPart counts the files of which only some hunks were applied.
func inPart(paths []apply.PathResult) int {
	n := 0
	for i := range paths {
		if p := &paths[i]; p.Outcome == apply.Applied && p.Hunks < p.OfHunks {
			n++
		}
	}
	return n
}

var outcomes = map[apply.Outcome]string{
	apply.Kept: "kept", apply.Conflict: "conflict", apply.Refused: "refused", apply.Failed: "failed", apply.Skipped: "not tried",
	apply.ChangedSinceReview: "left out, changed since you staged it", apply.LeftOut: "left out",
}
