package transplant

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// checkMerges refuses merges by which the source's branch would lose something. A merge can take
// paths from an older commit than the newest one: hidden and read-only ones, although no commit
// changes them, and others without what the branch has got meanwhile and the sandbox never saw.
func (g *graft) checkMerges(ctx context.Context, last *Commit) error {
	r := g.result
	if len(r.Refused) > 0 || len(r.roots) < 2 {
		return nil
	}
	newest, err := g.taken.git.Run(ctx, "work", nil, append([]string{"merge-base", "--independent"}, r.roots...)...)
	if err != nil {
		return err
	}
	changed := map[string]bool{}
	for _, m := range r.Moved {
		for _, x := range m.Changes {
			v, _ := g.plan.Judge(x.Path)
			changed[x.Path] = changed[x.Path] || v == Take
		}
	}
	for root := range strings.FieldsSeq(newest) {
		differ, err := g.taken.difference(ctx, root, r.Tip)
		if err != nil {
			return err
		}
		for _, x := range differ {
			if !changed[x.Path] {
				g.refuse(last, Change{Path: x.Path}, "no commit changes it, but a merge would set it back to an older version", false)
			}
		}
		if root == r.Base {
			if err := g.checkUnseen(ctx, last, differ); err != nil {
				return err
			}
		}
	}
	if len(r.Refused) > 0 {
		r.Tip = ""
	}
	return nil
}

// checkUnseen refuses paths that would lose what the base has and the sandbox never saw: a
// three-way merge of that into the new version must change nothing. differ has the paths that
// differ between the base and the new commit.
func (g *graft) checkUnseen(ctx context.Context, last *Commit, differ []Change) error {
	lost := map[string]bool{}
	for i, seen := range slices.Sorted(maps.Keys(g.seen)) {
		unseen, err := g.taken.difference(ctx, seen, g.result.Base)
		if err != nil {
			return err
		}
		was := map[string]Entry{}
		for _, x := range unseen {
			was[x.Path] = x.Old
		}
		for _, x := range differ {
			before, isUnseen := was[x.Path]
			if i > 0 && !lost[x.Path] {
				continue // a commit that has all is enough
			}
			lost[x.Path] = false
			if isUnseen {
				has, err := g.taken.hasChange(ctx, x.New, before, x.Old)
				if err != nil {
					return err
				}
				lost[x.Path] = !has
			}
		}
	}
	for _, x := range differ {
		if lost[x.Path] {
			g.refuse(last, x, "a merge would take back what your branch has changed in it", true)
		}
	}
	return nil
}

// hasChange reports whether the version now has the change from before to after.
func (t *Taken) hasChange(ctx context.Context, now, before, after Entry) (bool, error) {
	if !now.isFile() || !before.isFile() || !after.isFile() || after.Mode != before.Mode && now.Mode != after.Mode {
		return false, nil
	}
	if before.ID == after.ID {
		return true, nil
	}
	var texts [3]*os.File
	for i, e := range []Entry{now, before, after} {
		fd, err := unix.MemfdCreate("agentfense-merge", unix.MFD_CLOEXEC)
		if err != nil {
			return false, hostError(err)
		}
		texts[i] = os.NewFile(uintptr(fd), "merge")
		defer texts[i].Close()
		size := &limited{w: texts[i], left: maxMerged}
		if err := t.git.Pipe(ctx, "work", nil, size, "cat-file", "blob", e.ID); err != nil {
			return false, err
		}
		if size.left < 0 {
			return false, nil
		}
	}
	merged, ok, err := t.mergeFile(ctx, texts)
	if err != nil || !ok {
		return false, err
	}
	text, err := io.ReadAll(io.NewSectionReader(texts[0], 0, maxMerged))
	return bytes.Equal(merged, text), hostError(err)
}

// limited passes on what fits, and drops the rest. left is negative if something was dropped.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		return len(p), nil
	}
	return l.w.Write(p)
}

// difference returns the paths that differ between two commits.
func (t *Taken) difference(ctx context.Context, from, to string) ([]Change, error) {
	out, err := t.git.Run(ctx, "work", nil, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", from, to)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(strings.NewReader(out))
	list, err := readEntries(r, math.MaxInt)
	if rest, _ := r.ReadString('\n'); err == nil && rest != "" {
		err = badDiff(rest)
	}
	return list, err
}
