// Package portable writes what a sandbox changed to one file that other programs read: an
// AgentFS database (SQLite), a tar archive or an image in the OCI layout. It makes the delta of
// a new sandbox of an AgentFS database, and answers SQL queries about a sandbox.
//
// A file holds what the sandbox wrote and the names of what it deleted. It holds no content
// that the policy does not show inside: neither of the source nor of a copy of it, and no name
// of a hidden file that went with a deleted directory. Contents are copied through a bounded
// buffer. docs/export.md describes the files and the tables. Reviewing and applying are left to
// others.
package portable

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Skipped is a change that an export leaves out.
type Skipped = struct {
	Path vpath.Path
	Why  string
}

// Result is what an export wrote and what it left out. It counts what a review lists: no directory
// of which another change tells.
type Result struct {
	Entries   int // files, directories, links and special files
	Deletions int
	Skipped   []Skipped
	Notes     []string // for people: what else the file does not have
}

// count counts the changes that were taken, parents before children. Layers that have been written
// list what was in a deleted directory, too, until they are opened again.
func (r *Result) count(taken []changes.Change) {
	gone := map[vpath.Path]bool{}
	taken = slices.DeleteFunc(taken, func(c changes.Change) bool {
		gone[c.Path] = c.Status == changes.Deleted
		return gone[c.Path] && gone[c.Path.Dir()]
	})
	implied := review.Implied(taken)
	for i := range taken {
		switch c := &taken[i]; {
		case !c.IsListed() || implied[c.Path]:
		case c.Status == changes.Deleted:
			r.Deletions++
		default:
			r.Entries++
		}
	}
}

// Options say how an export is written. The zero value is one for a user of this host.
type Options struct {
	MostBytes int64 // of the file; 0: any number
	// Source names the source in place of its path and its numbers on this host.
	Source string
}

// Export writes one format to a new file, as AgentFS, Tar, OCI and Patch do.
type Export func(ctx context.Context, s *record.Sandbox, name string, how Options) (Result, error)

// Formats are the formats of an export.
var Formats = map[string]Export{"agentfs": AgentFS, "tar": Tar, "oci": OCI, "patch": Patch}

// bound returns w, or one that takes no more bytes than an export may have. Errors: Exhausted.
func (o Options) bound(w io.Writer) io.Writer {
	if o.MostBytes == 0 {
		return w
	}
	return &bounded{w, o.MostBytes, o.MostBytes}
}

// bounded is a writer of at most so many bytes.
type bounded struct {
	to         io.Writer
	left, most int64
}

// Write writes b if all of it fits.
func (w *bounded) Write(b []byte) (int, error) {
	if w.left -= int64(len(b)); w.left < 0 {
		return 0, tooLarge(w.most)
	}
	return w.to.Write(b)
}

// tooLarge is the error of a file above Options.MostBytes.
func tooLarge(most int64) error {
	return errdefs.New(errdefs.Exhausted, "export: the file would have more than %w: apply or discard changes first", &errdefs.Limit{Most: most, Resource: "bytes"})
}

// entry is a change that is exported.
type entry struct {
	path    vpath.Path
	info    layer.Info
	deleted bool
	baseIno uint64     // of the source's entry; 0 if there was none
	target  string     // of a symbolic link
	linkOf  vpath.Path // the first name of the same file; "" for the first
}

// delta is the exportable part of what a sandbox changed.
type delta struct {
	work    *changes.Work
	entries []entry                       // parents before children
	counted Result                        // the numbers of the entries
	linked  map[layer.FileID][]vpath.Path // names of files that have several
	skipped []Skipped
	notes   []string
}

// openDelta reads what the sandbox changed. Errors: those of changes.OpenToRead.
func openDelta(s *record.Sandbox) (*delta, error) {
	w, err := changes.OpenToRead(s)
	if err != nil {
		return nil, err
	}
	d := &delta{work: w}
	if d.linked, err = w.Stack.Linked(); err == nil {
		err = d.read()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return d, nil
}

func (d *delta) close() error { return d.work.Close() }

func (d *delta) read() error {
	all, err := d.work.Changes(nil, false)
	if err != nil {
		return err
	}
	first := map[layer.FileID]vpath.Path{}
	var taken []changes.Change
	for i := range all {
		c := &all[i]
		if !c.IsListed() || c.Status == changes.Deleted && c.Taken != "" {
			continue
		}
		if why := d.why(c); why != "" {
			d.skip(c.Path, why)
			continue
		}
		e := entry{path: c.Path, info: c.Info, deleted: c.Status == changes.Deleted}
		if c.Base != nil && !c.Base.Absent {
			e.baseIno = c.Base.Ino
		}
		if !e.deleted && !e.info.IsDir() && e.info.Nlink > 1 {
			if e.linkOf = first[e.info.ID]; e.linkOf == "" {
				first[e.info.ID] = e.path
			}
		}
		if err := d.readLink(&e); errdefs.Is(err, errdefs.NotFound) {
			continue // the running sandbox has removed it
		} else if err != nil {
			return err
		}
		d.entries, taken = append(d.entries, e), append(taken, *c)
	}
	d.counted.count(taken)
	return nil
}

func (d *delta) readLink(e *entry) (err error) {
	if !e.deleted && e.info.Mode&unix.S_IFMT == unix.S_IFLNK {
		e.target, err = d.work.Stack.Readlink(e.path)
	}
	return err
}

// why returns the reason why a change is not exported, or "".
func (d *delta) why(c *changes.Change) string {
	if why := c.LeftOut(); why != "" {
		return why
	}
	permission := d.work.Policy.Decide(c.Path).Permission
	switch {
	case c.Info.IsDir() && c.Status != changes.Deleted:
		permission = d.work.Policy.Decide(c.Path).ForDir()
		fallthrough
	case c.Status == changes.Deleted:
		if permission < policy.View {
			return "the policy hides it"
		}
	case !d.showsContent(c.Path, &c.Info):
		return "the policy does not show its content"
	}
	return ""
}

// showsContent reports whether the policy shows the content of a file: by each of its names, if
// commands gave it several.
func (d *delta) showsContent(p vpath.Path, i *layer.Info) bool {
	names := d.linked[i.ID]
	if i.Nlink < 2 || len(names) == 0 {
		names = []vpath.Path{p}
	}
	return d.work.Policy.DecideNames(names).ShowsContent()
}

func (d *delta) skip(p vpath.Path, why string) { d.skipped = append(d.skipped, Skipped{p, why}) }

func (d *delta) result() Result {
	r := d.counted
	r.Skipped, r.Notes = d.skipped, d.notes
	return r
}

// open opens the content of a regular file and returns its present size.
func (d *delta) open(e *entry) (*os.File, int64, error) {
	f, err := d.work.Stack.OpenDelta(e.path)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, errdefs.New(errdefs.Internal, "stat %s: %w", e.path, err)
	}
	return f, st.Size(), nil
}

// canceling is a reader that ends with a context.
type canceling struct {
	ctx context.Context
	io.Reader
}

func (r canceling) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, errdefs.New(errdefs.Canceled, "export: %w", err)
	}
	return r.Reader.Read(b)
}

// copyExactly copies size bytes. Errors: Unavailable if the file has become shorter.
func copyExactly(ctx context.Context, w io.Writer, f io.Reader, size int64, p vpath.Path) error {
	n, err := io.CopyN(w, canceling{ctx, f}, size)
	if errors.Is(err, io.EOF) && n < size {
		return errdefs.New(errdefs.Unavailable, "export %s: a command shortened the file meanwhile: try again", p)
	}
	return err
}
