package present

import (
	"bufio"
	"fmt"
	"io"

	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
)

// Pieces writes changes piece by piece, for a person who chooses some of them.
type Pieces struct {
	p patchWriter
	r *review.Review
}

// NewPieces returns a Pieces for the changes of r. Control characters are escaped.
func NewPieces(w io.Writer, r *review.Review, colour bool) *Pieces {
	return &Pieces{p: patchWriter{w: bufio.NewWriter(w), o: PatchOptions{Colour: colour}, mount: r.Mount()}, r: r}
}

// Head writes what a person must know of a file, and its names and modes.
func (w *Pieces) Head(f *review.FileDiff) {
	p := &w.p
	if f.Mark != nil {
		p.line(gitpatch.Warning, fmt.Sprintf("# %s: %s (%s)", f.Mark.Risk, quotedIn(p.mount, f.Path), f.Mark.Reason))
	}
	if f.NotPlaced != "" {
		p.line(gitpatch.Warning, fmt.Sprintf("# %s: cannot be applied: %s", quotedIn(p.mount, f.Path), f.NotPlaced))
	}
	if f.Stale {
		p.line(gitpatch.Warning, "# the source has changed since: "+quotedIn(p.mount, f.Path))
	}
	p.keeping(f)
	if f.RenamedFrom != "" {
		gitpatch.Rename(f.RenamedFrom, f.Path, p.write)
	}
}

// Names writes the line with the names and modes of a file of which parts can be chosen.
func (w *Pieces) Names(f *review.FileDiff) {
	gitpatch.Lines(f, &review.Content{}, true, w.p.write)
}

// Whole writes all of the change of a file.
func (w *Pieces) Whole(f *review.FileDiff) error {
	if f.RenamedFrom != "" {
		return w.r.NoteShown(f)
	}
	for _, part := range f.Parts() {
		c, err := w.r.Content(&part)
		if err != nil {
			return err
		}
		gitpatch.Lines(&part, &c, true, w.p.write)
	}
	return nil
}

// Hunk writes a hunk.
func (w *Pieces) Hunk(h textdiff.Hunk) {
	gitpatch.Hunks([]textdiff.Hunk{h}, true, w.p.write)
}

// Group writes what a group holds.
func (w *Pieces) Group(g review.Group) { w.p.groups([]review.Group{g}, "diff --verbose shows each") }

// Prompt writes a question, without a newline, and all that was written before it.
func (w *Pieces) Prompt(text string) error {
	if w.p.o.Colour {
		text = "\x1b[1;34m" + text + colourOff
	}
	w.p.w.WriteString(text + " ")
	return w.p.w.Flush()
}

// Say writes a line.
func (w *Pieces) Say(text string) { w.p.line(gitpatch.Context, text) }
