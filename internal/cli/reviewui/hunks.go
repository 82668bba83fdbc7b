package reviewui

import (
	"maps"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// chosenHunks are the ids of the staged hunks of a file, of which others are not staged.
type chosenHunks map[string]bool

// toggleHunk stages or unstages the hunk under the cursor, as it is shown. It reports whether there
// is one.
func (m *model) toggleHunk() bool {
	f := m.current()
	if f == nil || f.LeftOut != "" || m.doc == nil || len(m.doc.hunks) == 0 {
		return false
	}
	st, seen := m.seen[f.Path]
	if !seen {
		return false
	}
	chosen := maps.Clone(m.parts[f.Path])
	if _, staged := m.staged[f.Path]; staged && chosen == nil {
		chosen = chosenHunks{}
		for _, id := range m.doc.hunks {
			chosen[id] = true
		}
	}
	if chosen == nil {
		chosen = chosenHunks{}
	}
	id := m.doc.hunks[min(m.hunk, len(m.doc.hunks)-1)]
	if chosen[id] {
		delete(chosen, id)
	} else {
		chosen[id] = true
	}
	m.forget(f.Path)
	switch len(chosen) {
	case 0:
		return true
	case len(m.doc.hunks): // all of the file
	default:
		m.parts[f.Path] = chosen
	}
	m.staged[f.Path] = st
	delete(m.differs, f.Path)
	return true
}

// forget unstages a path.
func (m *model) forget(path vpath.Path) {
	delete(m.staged, path)
	delete(m.parts, path)
}

// isWhole reports whether all of a change is staged.
func (m *model) isWhole(path vpath.Path) bool {
	_, is := m.staged[path]
	return is && m.parts[path] == nil
}

// moveHunk moves the cursor of the diff to another hunk, and scrolls there.
func (m *model) moveHunk(by int) {
	if m.doc == nil || len(m.doc.hunks) == 0 {
		return
	}
	m.hunk = max(0, min(m.hunk+by, len(m.doc.hunks)-1))
	at := slices.IndexFunc(m.lines(), func(r docRow) bool { return r.hunk == m.hunk+1 })
	if at < m.docTop || at >= m.docTop+m.bodyHeight()-2 {
		m.docTop = max(0, min(at, len(m.lines())-m.bodyHeight()+2))
	}
}

// hunkMark is what is before the first line of a hunk, and its style.
func (m *model) hunkMark(r *docRow) span {
	mark, style := "[ ] ", "32"
	id := m.doc.hunks[r.hunk-1]
	if m.isWhole(m.path) || m.parts[m.path][id] {
		mark = "[x] "
	}
	if m.inDiff && r.hunk == m.hunk+1 {
		style = "7"
	}
	return span{mark, style}
}

// idsOf are the ids of what is staged: of the hunks where only some are, else of the changes.
func idsOf(r *review.Review, parts map[vpath.Path]chosenHunks) ([]string, error) {
	var ids []string
	files := r.Files()
	for i := range files {
		f := &files[i]
		if chosen := parts[f.Path]; chosen != nil {
			ids = append(ids, slices.Sorted(maps.Keys(chosen))...)
			continue
		}
		if f.LeftOut != "" {
			continue
		}
		c, err := r.Content(f)
		if err != nil {
			return nil, err
		}
		id := hunk.Of(f, &c).Whole
		if id == "" {
			return nil, errdefs.New(errdefs.Unsupported, "%s: it cannot be applied together with hunks of other files; stage it alone", vpath.Quote(f.Path.Rel()))
		}
		ids = append(ids, id)
	}
	return ids, nil
}
