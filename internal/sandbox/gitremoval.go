package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/githistory"
	"github.com/agentfense/agentfense/internal/gitindex"
	"github.com/agentfense/agentfense/internal/vpath"
)

// What a review asks git at most.
const (
	removalPatience = 2 * time.Second
	maxChangedRefs  = 32
)

// markRemovals marks the changes with which git would lose files that the
// sandbox was not shown: an index without them, and refs whose commit lacks
// them although the one before has them. It returns their paths.
func (w *work) markRemovals(files []FileDiff) map[vpath.Path]bool {
	marked := map[vpath.Path]bool{}
	ctx, cancel := context.WithTimeout(context.Background(), removalPatience)
	defer cancel()
	repositories := map[vpath.Path]*changedRepository{}
	defer func() {
		for _, r := range repositories {
			r.close()
		}
	}()
	asked := 0
	for i := range files {
		f := &files[i]
		reason := ""
		if root, ok := workTreeOf(f.Path); ok {
			reason = w.indexRemoves(f, root)
		} else if root, name, ok := refOf(f.Path); ok && f.Status != Deleted && asked < maxChangedRefs {
			asked++
			r := repositories[root]
			if r == nil {
				r = w.openRepository(root)
				repositories[root] = r
			}
			reason = r.removes(ctx, f, name)
		}
		if reason != "" {
			f.Mark = &Mark{RunsOnHost, reason}
			marked[f.Path] = true
		}
	}
	return marked
}

// first orders what is true before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// indexRemoves says which hidden file the index f lacks that the source's has.
func (w *work) indexRemoves(f *FileDiff, root vpath.Path) string {
	was := w.sourceIndex(f.Path)
	if was == nil {
		return ""
	}
	has := map[string]bool{}
	if f.Status != Deleted {
		now := w.deltaIndex(f.Path)
		if now == nil {
			return ""
		}
		now.Entries(func(e gitindex.Entry) { has[e.Path] = true })
	}
	var lost []vpath.Path
	was.Entries(func(e gitindex.Entry) {
		if has[e.Path] || len(lost) == maxTracked {
			return
		}
		has[e.Path] = true // a conflict has a path several times
		if p, ok := trackedPath(root, e.Path); ok && w.wasHidden(p) {
			lost = append(lost, p)
		}
	})
	return removal("git index without hidden", lost)
}

// removal words a mark; it is "" if nothing is lost.
func removal(what string, lost []vpath.Path) string {
	switch len(lost) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s %s", what, quote(lost[0]))
	}
	return fmt.Sprintf("%s %s and %d more", what, quote(lost[0]), len(lost)-1)
}

// refOf takes the path of a ref apart: the directory of its work tree, and its
// name.
func refOf(p vpath.Path) (root vpath.Path, name string, ok bool) {
	before, name, ok := strings.Cut(string(p), "/.git/")
	if !ok || name != "HEAD" && name != "packed-refs" && !strings.HasPrefix(name, "refs/") {
		return "", "", false
	}
	if before == "" {
		return vpath.Root, name, true
	}
	return vpath.Path(before), name, true
}

// changedRepository is a repository of the source of which the delta changes
// refs.
type changedRepository struct {
	work    *work
	root    vpath.Path
	refs    githistory.Refs // the source's
	objects githistory.Objects
	err     error
}

func (w *work) openRepository(root vpath.Path) *changedRepository {
	r := &changedRepository{work: w, root: root}
	git := root.Child(".git")
	dir, err := w.stack.OpenSourceDir(git)
	if err != nil {
		return r // the source has no such repository: nothing is lost
	}
	defer dir.Close()
	if w.sandbox.record.Served != nil && os.Geteuid() == 0 {
		r.err = errors.New("a server that runs as root does not ask git about what its clients made")
		return r
	}
	if r.refs, r.err = githistory.ReadRefs(int(dir.Fd())); r.err != nil {
		return r
	}
	of := git.Child("objects")
	if r.objects, r.err = w.stack.OpenDeltaDirs(of); r.err != nil {
		return r
	}
	objects, err := w.stack.OpenSourceDir(of)
	if err != nil {
		r.err = err
		return r
	}
	r.objects = append(r.objects, objects)
	return r
}

func (r *changedRepository) close() {
	for _, f := range r.objects {
		f.Close()
	}
}

// removes says which hidden files a changed ref, or file of refs, lacks.
func (r *changedRepository) removes(ctx context.Context, f *FileDiff, name string) string {
	if r.err == nil && len(r.refs) == 0 {
		return ""
	}
	var lost []vpath.Path
	err := r.err
	if err == nil {
		lost, err = r.lost(ctx, f, name)
	}
	if err != nil && len(lost) == 0 && r.tracksHidden() {
		return fmt.Sprintf("git ref, not checked for removed hidden files: %s", vpath.Escape(err.Error()))
	}
	return removal("git commit without hidden", lost)
}

// tracksHidden reports whether the source's index has hidden files.
func (r *changedRepository) tracksHidden() bool {
	x := r.work.sourceIndex(r.root.Child(".git").Child("index"))
	found := false
	if x != nil {
		x.Entries(func(e gitindex.Entry) {
			p, ok := trackedPath(r.root, e.Path)
			found = found || ok && r.work.wasHidden(p)
		})
	}
	return found
}

func (r *changedRepository) lost(ctx context.Context, f *FileDiff, name string) ([]vpath.Path, error) {
	tips, err := r.tips(f, name)
	if err != nil {
		return nil, err
	}
	var lost []vpath.Path
	for ref, tip := range tips {
		base := r.refs[ref]
		if base == "" {
			base = r.refs["HEAD"]
		}
		if base == "" || base == tip {
			continue
		}
		err := githistory.Removed(ctx, r.objects, base, tip, func(name string) bool {
			if p, ok := trackedPath(r.root, name); ok && r.work.wasHidden(p) && !slices.Contains(lost, p) {
				lost = append(lost, p)
			}
			return len(lost) < maxTracked
		})
		if err != nil {
			return lost, err
		}
	}
	slices.Sort(lost)
	return lost, nil
}

// tips are the refs that the delta's file at f names and the source has
// otherwise.
func (r *changedRepository) tips(f *FileDiff, name string) (githistory.Refs, error) {
	if f.New == nil || f.New.Mode&typeBits != unix.S_IFREG {
		return nil, errors.New("it is no file")
	}
	file, err := r.work.stack.OpenDelta(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := readShort(file)
	if err != nil {
		return nil, err
	}
	tips := githistory.Refs{}
	if name == "packed-refs" {
		tips.AddPacked(text)
	} else if _, id := githistory.ParseRef(text); id != "" {
		tips[name] = id
	}
	for ref, tip := range tips {
		if r.refs[ref] == tip {
			delete(tips, ref)
		}
	}
	if len(tips) > maxChangedRefs {
		return nil, fmt.Errorf("more than %d refs", maxChangedRefs)
	}
	return tips, nil
}

// refsMax is how much of a file of refs is read.
const refsMax = 1 << 20

func readShort(f *os.File) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, refsMax+1))
	if len(text) > refsMax {
		return nil, fmt.Errorf("it is larger than %d bytes", refsMax)
	}
	return text, err
}
