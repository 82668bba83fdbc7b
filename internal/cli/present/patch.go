package present

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
)

// PatchOptions say how a patch is written. The zero value is safe to show.
type PatchOptions struct {
	// Raw leaves control characters in contents as they are, so that every
	// text change can be applied by git. Without it they are escaped and
	// git apply refuses the patch of such a file. Names are always quoted.
	Raw bool
	// Colour highlights as git does.
	Colour bool
	// Verbose writes also the changes that are in groups. Raw does, too.
	Verbose bool
}

// Patch writes the changes as a unified diff in git's format. What git has no form for
// is in lines that start with "#": the marks, empty directories, special files, what no
// apply takes, the mount, and at the end the groups. It notes all of them as shown.
func Patch(w io.Writer, r *review.Review, o PatchOptions) error {
	p := patchWriter{w: bufio.NewWriter(w), o: o, mount: r.Mount()}
	whole := o.Verbose || o.Raw
	files := r.Files()
	if p.mount != "" && len(files) > 0 {
		p.line(gitpatch.Header, "# in "+p.mount+":/")
	}
	p.marks(files, whole)
	for i := range files {
		f := &files[i]
		if f.NotPlaced != "" {
			p.line(gitpatch.Warning, fmt.Sprintf("# %s: cannot be applied: %s", quotedIn(p.mount, f.Path), f.NotPlaced))
		}
		p.keeping(f)
		var err error
		switch {
		case f.LeftOut != "":
			p.line(gitpatch.Warning, fmt.Sprintf("# %s: %s", quotedIn(p.mount, f.Path), f.LeftOut))
		case f.Group != "" && !whole, f.RenamedTo != "":
			err = r.NoteShown(f)
		case f.RenamedFrom != "":
			gitpatch.Rename(f.RenamedFrom, f.Path, p.write)
			err = r.NoteShown(f)
		default:
			err = p.file(r, f)
		}
		if err != nil {
			return err
		}
	}
	if !whole {
		p.groups(r.Groups(), "--verbose shows each")
	}
	return p.w.Flush()
}

type patchWriter struct {
	w     *bufio.Writer // keeps the first error until Flush
	o     PatchOptions
	mount string // in which the changes are
}

func (p *patchWriter) file(r *review.Review, f *review.FileDiff) error {
	if f.Stale {
		p.line(gitpatch.Warning, "# the source has changed since: "+quotedIn(p.mount, f.Path))
	}
	for _, part := range f.Parts() {
		content, err := r.Content(&part)
		if err != nil {
			return err
		}
		gitpatch.Lines(&part, &content, !p.o.Raw, p.write)
	}
	return nil
}

// colours are git's defaults (color.diff.<slot>, git-config(1)).
var colours = map[gitpatch.Kind]string{
	gitpatch.Header:  "\x1b[1m",
	gitpatch.Hunk:    "\x1b[36m",
	gitpatch.Old:     "\x1b[31m",
	gitpatch.New:     "\x1b[32m",
	gitpatch.Warning: "\x1b[33m",
}

const colourOff = "\x1b[m"

func (p *patchWriter) write(l gitpatch.Line) { p.line(l.Kind, l.Text) }

func (p *patchWriter) line(kind gitpatch.Kind, text string) {
	if colour := colours[kind]; p.o.Colour && colour != "" {
		text = colour + text + colourOff
	}
	p.w.WriteString(text)
	p.w.WriteByte('\n')
}

// marks lists the marked files before everything else, unless their groups do.
func (p *patchWriter) marks(files []review.FileDiff, whole bool) {
	marked := false
	for _, f := range files {
		if f.Mark != nil && (f.Group == "" || whole) {
			p.line(gitpatch.Warning, fmt.Sprintf("# %s: %s (%s)", f.Mark.Risk, quotedIn(p.mount, f.Path), f.Mark.Reason))
			marked = true
		}
	}
	if marked {
		p.line(gitpatch.Context, "")
	}
}

// keeping says of a file that a rule with apply: keep matches what becomes of it.
func (p *patchWriter) keeping(f *review.FileDiff) {
	switch k := &f.Keeping; {
	case !k.Rule:
	case k.Waits != "":
		p.line(gitpatch.Warning, fmt.Sprintf("# %s: waits in spite of apply: keep: %s", quotedIn(p.mount, f.Path), k.Waits))
	case len(k.Keys) > 0:
		p.line(gitpatch.Header, fmt.Sprintf("# %s: apply: keep applies keys of it when a command ends: %s", quotedIn(p.mount, f.Path), vpath.Escape(strings.Join(k.Keys, ", "))))
	case f.Stale:
		p.line(gitpatch.Warning, fmt.Sprintf("# %s: waits in spite of apply: keep: the source has changed since", quotedIn(p.mount, f.Path)))
	default:
		p.line(gitpatch.Header, fmt.Sprintf("# %s: apply: keep applies it when a command ends", quotedIn(p.mount, f.Path)))
	}
}

// groups says what the groups hold; hint says how to see more.
func (p *patchWriter) groups(groups []review.Group, hint string) {
	for _, g := range groups {
		p.line(gitpatch.Header, "# "+GroupTitle(&g)+" ("+hint+")")
		for _, line := range g.Lines[min(1, len(g.Lines)):] {
			p.line(gitpatch.Context, fmt.Sprintf("# %s: %s", g.Name, line))
		}
		for _, m := range g.Marks {
			if m.IsUsual() {
				continue
			}
			p.line(gitpatch.Warning, fmt.Sprintf("#   %s (%s): %s", m.Risk, m.Reason, p.namesOf(m)))
		}
	}
}

// How many paths with a mark a group names.
const (
	namesThatRun   = 50
	namesOfTrusted = 10
)

func (p *patchWriter) namesOf(m review.GroupMark) string {
	most := namesOfTrusted
	if m.Risk == review.RunsOnHost {
		most = namesThatRun
	}
	var names []string
	for i, path := range m.Paths {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(m.Paths)-i))
			break
		}
		names = append(names, quotedIn(p.mount, path))
	}
	return strings.Join(names, ", ")
}
