package transplant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun"
)

// maxMerged bounds the texts that are merged, in bytes each.
const maxMerged = 32 << 20

// merge writes the changes of a commit to the tree of what its first parent became, which
// fast-import has at hand.
func (g *graft) merge(ctx context.Context, c *Commit, changes []Change) error {
	for _, x := range changes {
		why, err := g.mergeOne(ctx, x)
		if err != nil {
			return err
		}
		if why != "" {
			g.refuse(c, x, why, true)
		}
	}
	return nil
}

// mergeOne merges a change. It returns why it conflicts, "" if it does not.
func (g *graft) mergeOne(ctx context.Context, x Change) (why string, err error) {
	now, isTree, err := g.look(x.Path)
	if err != nil {
		return "", err
	}
	switch {
	case isTree:
		return "the branch has a directory there", nil
	case now == x.New:
		return "", nil
	case now == x.Old:
		if now == (Entry{}) {
			why, err = g.checkPlace(x.Path)
		}
		if why == "" && err == nil {
			g.write(x.Path, x.New)
		}
		return why, err
	case now == Entry{}:
		return "the branch does not have the file that the sandbox changed", nil
	case x.Old == Entry{}:
		return "the branch has another file there, which the sandbox did not see", nil
	case x.New == Entry{}:
		return "the branch has another version than the one that the sandbox deleted", nil
	case !now.isFile() || !x.Old.isFile() || !x.New.isFile():
		return "the branch has another version than the one that the sandbox changed, and they are not all files", nil
	}
	return g.mergeFiles(ctx, x, now)
}

// mergeFiles merges the change of a file of which the branch has another version.
func (g *graft) mergeFiles(ctx context.Context, x Change, now Entry) (why string, err error) {
	mode := now.Mode
	if x.New.Mode != x.Old.Mode {
		mode = x.New.Mode
	}
	switch {
	case x.New.ID == x.Old.ID || x.New.ID == now.ID:
		g.write(x.Path, Entry{mode, now.ID})
		return "", nil
	case now.ID == x.Old.ID:
		g.write(x.Path, Entry{mode, x.New.ID})
		return "", nil
	}
	var texts [3]*os.File
	for i, id := range []string{now.ID, x.Old.ID, x.New.ID} {
		if texts[i], err = g.blob(id); err != nil {
			return "", err
		}
		if texts[i] == nil {
			return "both changed it, and it is larger than 32 MiB", nil
		}
		defer texts[i].Close()
	}
	merged, ok, err := g.taken.mergeFile(ctx, texts)
	if err != nil || !ok {
		return "both changed the same lines, or it is no text", err
	}
	fmt.Fprintf(g.out, "M %s inline %s\ndata %d\n%s\n", mode, quote(x.Path), len(merged), merged)
	return "", nil
}

// write writes an entry; the zero Entry is a deletion.
func (g *graft) write(name string, e Entry) {
	if e == (Entry{}) {
		fmt.Fprintf(g.out, "D %s\n", quote(name))
		return
	}
	fmt.Fprintf(g.out, "M %s %s %s\n", e.Mode, e.ID, quote(name))
}

// checkPlace returns why there can be no file of a name, "" if there can be one.
func (g *graft) checkPlace(name string) (why string, err error) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		at, isTree, err := g.look(dir)
		if err != nil || isTree {
			return "", err
		}
		if at != (Entry{}) {
			return fmt.Sprintf("the branch has a file at %s", strconv.Quote(dir)), nil
		}
	}
	return "", nil
}

// look returns what the tree has at a path.
func (g *graft) look(name string) (e Entry, isTree bool, err error) {
	fmt.Fprintf(g.out, "ls %s\n", quote(name))
	line, err := g.answer()
	if err != nil {
		return e, false, err
	}
	field := strings.Fields(line)
	switch {
	case len(field) >= 1 && field[0] == "missing":
		return e, false, nil
	case len(field) < 4:
		return e, false, badImport(line)
	case field[1] == "tree":
		return e, true, nil
	}
	return Entry{field[0], field[2]}, false, nil
}

// blob returns a file with a content; nil if it is too large.
func (g *graft) blob(id string) (*os.File, error) {
	fmt.Fprintf(g.out, "cat-blob %s\n", id)
	line, err := g.answer()
	if err != nil {
		return nil, err
	}
	field := strings.Fields(line)
	if len(field) != 3 || field[1] != "blob" {
		return nil, badImport(line)
	}
	size, err := strconv.ParseInt(field[2], 10, 64)
	if err != nil || size < 0 {
		return nil, badImport(line)
	}
	var f *os.File
	to := io.Discard
	if size <= maxMerged {
		fd, err := unix.MemfdCreate("agentfense-merge", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, hostError(err)
		}
		f = os.NewFile(uintptr(fd), "merge")
		to = f
	}
	_, err = io.CopyN(to, g.in, size)
	if err == nil {
		_, err = g.in.Discard(1) // the end of the line
	}
	if err != nil && f != nil {
		f.Close()
	}
	return f, hostError(err)
}

func badImport(line string) error {
	return errdefs.New(errdefs.Internal, "git fast-import: an unknown answer %q", line)
}

// mergeFile merges texts: ours, the base and theirs. ok is false for a conflict, and for what is no
// text.
func (t *Taken) mergeFile(ctx context.Context, texts [3]*os.File) (merged []byte, ok bool, err error) {
	cmd := t.git.Command(ctx, "clean", "merge-file", "-p", "-q", gitrun.Inherited(0), gitrun.Inherited(1), gitrun.Inherited(2))
	cmd.ExtraFiles = texts[:]
	var out bytes.Buffer
	cmd.Stdout = &out
	err = cmd.Run()
	if _, is := errors.AsType[*exec.ExitError](err); is && ctx.Err() == nil {
		return nil, false, nil
	}
	return out.Bytes(), err == nil, gitrun.Failed(ctx, err, cmd.Args, "")
}

// quote writes a path as git reads it (quote.c).
func quote(name string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(name) {
		if c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\%03o`, c)
			continue
		}
		b.WriteByte(c)
	}
	b.WriteByte('"')
	return b.String()
}
