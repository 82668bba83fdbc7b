package review

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
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

// notAPatch stands between a file's names and its first hunk where the hunks
// are escaped: git apply refuses a patch with such a line ("patch fragment
// without header"), so nobody applies the escapes in place of what they show.
const notAPatch = "# control characters are shown escaped: this is no patch"

// WriteFilePatch writes the change of one file as a unified diff in git's
// format, and tells what there is to its content.
func (r *Review) WriteFilePatch(w io.Writer, f *FileDiff, o PatchOptions) (Content, error) {
	p := patchWriter{w: bufio.NewWriter(w), o: o}
	var sum Content
	for _, part := range f.parts() {
		c, err := r.Content(&part)
		if err != nil {
			return sum, err
		}
		p.file(&part, c)
		sum.Inserted, sum.Deleted = sum.Inserted+c.Inserted, sum.Deleted+c.Deleted
		sum.SHA256 = cmp.Or(c.SHA256, sum.SHA256)
		sum.Binary, sum.TooLarge, sum.Unknown = sum.Binary || c.Binary, sum.TooLarge || c.TooLarge, sum.Unknown || c.Unknown
	}
	return sum, p.w.Flush()
}

// WritePatch writes the changes as a unified diff in git's format. What git
// has no form for stands in lines that start with "#": the marks, empty
// directories, special files, what no apply takes, and at the end the groups.
func (r *Review) WritePatch(w io.Writer, o PatchOptions) error {
	p := patchWriter{w: bufio.NewWriter(w), o: o}
	whole := o.Verbose || o.Raw
	p.marks(r.files, whole)
	for i := range r.files {
		f := &r.files[i]
		if f.NotPlaced != "" {
			p.line(colourWarn, fmt.Sprintf("# %s: cannot be applied: %s", changes.Quote(f.Path), f.NotPlaced))
		}
		var err error
		switch {
		case f.LeftOut != "":
			p.line(colourWarn, fmt.Sprintf("# %s: %s", changes.Quote(f.Path), f.LeftOut))
		case f.Group != "" && !whole, f.RenamedTo != "":
			err = r.take(f)
		case f.RenamedFrom != "":
			p.rename(f)
			err = r.take(f)
		default:
			err = r.writeFile(&p, f)
		}
		if err != nil {
			return err
		}
	}
	if !whole {
		p.groups(r.groups)
	}
	return p.w.Flush()
}

func (r *Review) writeFile(p *patchWriter, f *FileDiff) error {
	if f.Stale {
		p.line(colourWarn, "# the source has changed since: "+changes.Quote(f.Path))
	}
	for _, part := range f.parts() {
		content, err := r.Content(&part)
		if err != nil {
			return err
		}
		p.file(&part, content)
	}
	return nil
}

// take counts f as shown without a comparison: its path, and by the digest what
// it holds.
func (r *Review) take(f *FileDiff) error {
	if r.work == nil {
		return nil
	}
	e, err := entryNow(r.work, &f.Change)
	switch {
	case err == nil && (!e.IsRegular() || e.SHA256 != ""):
		r.shown[f.Path] = e
	case errdefs.Is(err, errdefs.NotFound), errdefs.Is(err, errdefs.Precondition), errdefs.Is(err, errdefs.Denied):
		return nil // gone again, from a live sandbox: it is not shown
	}
	return err
}

type patchWriter struct {
	w *bufio.Writer // keeps the first error until Flush
	o PatchOptions
}

// The colours are git's defaults (color.diff.<slot>, git-config(1)).
const (
	colourOff  = "\x1b[m"
	colourMeta = "\x1b[1m"
	colourFrag = "\x1b[36m"
	colourOld  = "\x1b[31m"
	colourNew  = "\x1b[32m"
	colourWarn = "\x1b[33m"
)

func (p *patchWriter) line(colour, text string) {
	if p.o.Colour && colour != "" {
		text = colour + text + colourOff
	}
	p.w.WriteString(text)
	p.w.WriteByte('\n')
}

// marks lists the marked files before everything else, unless their groups do.
func (p *patchWriter) marks(files []FileDiff, whole bool) {
	marked := false
	for _, f := range files {
		if f.Mark != nil && (f.Group == "" || whole) {
			p.line(colourWarn, fmt.Sprintf("# %s: %s (%s)", f.Mark.Risk, changes.Quote(f.Path), f.Mark.Reason))
			marked = true
		}
	}
	if marked {
		p.line("", "")
	}
}

func (p *patchWriter) file(f *FileDiff, c Content) {
	if !isPatchable(f.Old) || !isPatchable(f.New) {
		p.line(colourMeta, fmt.Sprintf("# %s: %s", changes.Quote(f.Path), f.describeChange()))
		return
	}
	p.header(f)
	p.content(f, c)
}

// parts returns f, or for a change of type the deletion and the addition that
// it is to git.
func (f *FileDiff) parts() []FileDiff {
	if f.Status != changes.Retyped {
		return []FileDiff{*f}
	}
	gone, made := *f, *f
	gone.New, made.Old = nil, nil
	return []FileDiff{gone, made}
}

// isPatchable reports whether git has a form for the side.
func isPatchable(s *Side) bool {
	return s == nil || s.Mode&record.TypeBits == unix.S_IFREG || s.Mode&record.TypeBits == unix.S_IFLNK
}

func (p *patchWriter) header(f *FileDiff) {
	p.line(colourMeta, "diff --git "+quoteSide("a", f.Path)+" "+quoteSide("b", f.Path))
	switch {
	case f.Old == nil:
		p.line(colourMeta, "new file mode "+gitMode(f.New))
	case f.New == nil:
		p.line(colourMeta, "deleted file mode "+gitMode(f.Old))
	case f.Old.Mode != f.New.Mode:
		p.line(colourMeta, "old mode "+gitMode(f.Old))
		p.line(colourMeta, "new mode "+gitMode(f.New))
	}
}

// rename writes the two halves of a rename as one, which git apply takes.
func (p *patchWriter) rename(f *FileDiff) {
	p.line(colourMeta, "diff --git "+quoteSide("a", f.RenamedFrom)+" "+quoteSide("b", f.Path))
	p.line(colourMeta, "similarity index 100%")
	p.line(colourMeta, "rename from "+changes.Quote(f.RenamedFrom))
	p.line(colourMeta, "rename to "+changes.Quote(f.Path))
}

// groups says what the groups hold.
func (p *patchWriter) groups(groups []Group) {
	for _, g := range groups {
		p.line(colourMeta, "# "+g.Title()+" (--verbose shows each)")
		for _, line := range g.Lines[min(1, len(g.Lines)):] {
			p.line("", fmt.Sprintf("# %s: %s", g.Name, line))
		}
		for _, m := range g.Marks {
			if m.IsUsual() {
				continue
			}
			p.line(colourWarn, fmt.Sprintf("#   %s (%s): %s", m.Risk, m.Reason, namesOf(m)))
		}
	}
}

// How many paths with a mark a group names.
const (
	namesThatRun   = 50
	namesOfTrusted = 10
)

func namesOf(m GroupMark) string {
	most := namesOfTrusted
	if m.Risk == RunsOnHost {
		most = namesThatRun
	}
	var names []string
	for i, p := range m.Paths {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(m.Paths)-i))
			break
		}
		names = append(names, changes.Quote(p))
	}
	return strings.Join(names, ", ")
}

func (p *patchWriter) content(f *FileDiff, c Content) {
	oldName, newName := quoteSide("a", f.Path), quoteSide("b", f.Path)
	if f.Old == nil {
		oldName = "/dev/null"
	}
	if f.New == nil {
		newName = "/dev/null"
	}
	switch {
	case !c.isShown():
		p.line("", fmt.Sprintf("Binary files %s and %s differ", oldName, newName))
		p.line(colourWarn, "# "+describe(f, c))
	case len(c.Hunks) > 0:
		// git ends a name that holds a space with a tab, for GNU patch.
		p.line(colourMeta, "--- "+endName(oldName))
		p.line(colourMeta, "+++ "+endName(newName))
		p.hunks(c.Hunks)
	}
}

// describe says why a content is not shown.
func describe(f *FileDiff, c Content) string {
	sizes := fmt.Sprintf("%d to %d bytes", sizeOf(f.Old), sizeOf(f.New))
	if c.SHA256 != "" {
		sizes += ", now with SHA-256 " + c.SHA256
	}
	switch {
	case c.Binary:
		return "binary, " + sizes
	case c.TooLarge:
		return fmt.Sprintf("larger than %d bytes, not shown: %s", textdiff.SizeLimit, sizes)
	}
	return "what the sandbox saw was not kept: " + sizes
}

func sizeOf(s *Side) int64 {
	if s == nil {
		return 0
	}
	return s.SizeBytes
}

func (p *patchWriter) hunks(hunks []textdiff.Hunk) {
	if !p.o.Raw {
		shown, escaped := textdiff.EscapeHunks(hunks)
		if escaped {
			p.line(colourWarn, notAPatch)
		}
		hunks = shown
	}
	if !p.o.Colour {
		for _, h := range hunks {
			p.w.WriteString(h.String())
		}
		return
	}
	colours := map[textdiff.Op]string{textdiff.Delete: colourOld, textdiff.Insert: colourNew}
	for _, h := range hunks {
		p.line(colourFrag, h.Header())
		for _, l := range h.Lines {
			text, whole := strings.CutSuffix(l.Text, "\n")
			p.line(colours[l.Op], string(rune(l.Op))+text)
			if !whole {
				p.line("", `\ No newline at end of file`)
			}
		}
	}
}

// describeChange says in words what became of a path.
func (f *FileDiff) describeChange() string {
	switch {
	case f.Old == nil:
		return fmt.Sprintf("new %s, mode %04o", TypeName(f.New.Mode), f.New.Mode&record.StickyBits)
	case f.New == nil:
		return "deleted " + TypeName(f.Old.Mode)
	}
	return fmt.Sprintf("%s, mode %04o became %04o", TypeName(f.Old.Mode), f.Old.Mode&record.StickyBits, f.New.Mode&record.StickyBits)
}

// TypeName names the type of file of a mode.
func TypeName(mode uint32) string {
	switch mode & record.TypeBits {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "symbolic link"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

// gitMode returns the mode as git writes it, with all permission bits: git
// itself knows only 644 and 755.
func gitMode(s *Side) string {
	if s.Mode&record.TypeBits == unix.S_IFLNK {
		return "120000"
	}
	return fmt.Sprintf("%06o", s.Mode&(record.TypeBits|record.PermBits))
}

func quoteSide(side string, p vpath.Path) string { return textdiff.QuoteName(side + string(p)) }

func endName(name string) string {
	if strings.Contains(name, " ") && !strings.HasPrefix(name, `"`) {
		return name + "\t"
	}
	return name
}
