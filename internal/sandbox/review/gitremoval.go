package review

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

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/githistory"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// What a review asks git, and lists, at most.
const (
	removalPatience = 2 * time.Second
	maxChangedRefs  = 32
	maxLosses       = 1000 // of a kind
)

// markRemovals marks the changes with which git would lose files that the
// sandbox was not shown: an index without them, or with others in their place, and
// refs whose commit lacks them, or has others, although the one before has them.
// An index with hidden files that the source's lacks is marked less gravely.
// What cannot be looked at is marked, too. It returns their paths. It leaves out files
// that changed says the sandbox left as they are in the source.
func markRemovals(w *changes.Work, files []FileDiff, changed func(vpath.Path) bool) map[vpath.Path]bool {
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
		if f.Own || !changed(f.Path) {
			continue
		}
		reason := ""
		if root, ok := gitindex.WorkTreeOf(f.Path); ok {
			var adds string
			if reason, adds = indexChanges(w, f, root); reason == "" && adds != "" {
				f.Mark = &RiskFlag{TrustedLater, adds}
			}
		} else if root, name, ok := refOf(f.Path); ok {
			r := repositories[root]
			if r == nil {
				r = openRepository(w, root)
				repositories[root] = r
			}
			if asked++; asked > maxChangedRefs && r.err == nil {
				r.err = fmt.Errorf("more than %d refs have changed", maxChangedRefs)
			}
			reason = r.removes(ctx, f, name)
		}
		if reason != "" {
			f.Mark = &RiskFlag{RunsOnHost, reason}
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

// losses are the hidden files that git would lose.
type losses struct{ gone, changed []vpath.Path }

// note adds p, and reports whether there is room for more.
func (l *losses) note(p vpath.Path, gone bool) bool {
	list := &l.changed
	if gone {
		list = &l.gone
	}
	if !slices.Contains(*list, p) {
		*list = append(*list, p)
	}
	return len(*list) < maxLosses
}

// reason words a mark of what loses them; it is "" if nothing is lost.
func (l *losses) reason(what string) string {
	list, how := l.gone, "without"
	if len(list) == 0 {
		list, how = l.changed, "with another"
	}
	switch len(list) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s %s hidden %s", what, how, changes.Quote(slices.Min(list)))
	}
	return fmt.Sprintf("%s %s hidden %s and %d more", what, how, changes.Quote(slices.Min(list)), len(list)-1)
}

// indexChanges says which hidden file that the source's index has the index f lacks
// or has otherwise, and which it has besides: git keeps the content of these, made
// inside, in objects that an apply takes.
func indexChanges(w *changes.Work, f *FileDiff, root vpath.Path) (lacks, adds string) {
	was := hiddenEntries(w, w.SourceIndex(f.Path), root)
	if f.Status == changes.Deleted {
		return compareIndex(was, nil)
	}
	x := w.DeltaIndex(f.Path)
	if x == nil && len(was) > 0 {
		return "git index, not checked for removed hidden files: it cannot be read, or is split", ""
	}
	return compareIndex(was, hiddenEntries(w, x, root))
}

func compareIndex(was, now map[vpath.Path]string) (lacks, adds string) {
	var lost losses
	for p, entries := range was {
		if is := now[p]; is != entries {
			lost.note(p, is == "")
		}
	}
	var added []vpath.Path
	for p := range now {
		if was[p] == "" {
			added = append(added, p)
		}
	}
	switch n := len(added); {
	case n == 1:
		adds = fmt.Sprintf("git index with %s, which the policy hides: its content in .git is applied", changes.Quote(added[0]))
	case n > 1:
		adds = fmt.Sprintf("git index with %s and %d more, which the policy hides: their content in .git is applied", changes.Quote(slices.Min(added)), n-1)
	}
	return lost.reason("git index"), adds
}

// hiddenEntries are what x says of files that a policy of the sandbox hides.
func hiddenEntries(w *changes.Work, x *gitindex.Index, root vpath.Path) map[vpath.Path]string {
	entries := map[vpath.Path]string{}
	if x != nil {
		x.Entries(func(e gitindex.Entry) {
			if p, ok := gitindex.TrackedPath(root, e.Path); ok && w.WasHidden(p) {
				entries[p] += fmt.Sprintf("%o %x %d\n", e.Mode, e.Object, e.Stage)
			}
		})
	}
	return entries
}

// refOf takes the path of a ref, or of a file of refs, apart: the directory of its
// work tree, and its name.
func refOf(p vpath.Path) (root vpath.Path, name string, ok bool) {
	before, name, ok := strings.Cut(string(p), "/.git/")
	if !ok || name != "HEAD" && name != "packed-refs" && !strings.HasPrefix(name, "refs/") && !strings.HasPrefix(name, refTable) {
		return "", "", false
	}
	if before == "" {
		return vpath.Root, name, true
	}
	return vpath.Path(before), name, true
}

// refTable begins the names of files that hold refs in git's newer form.
const refTable = "reftable/"

// changedRepository is a repository of the source of which the delta changes
// refs.
type changedRepository struct {
	work    *changes.Work
	root    vpath.Path
	refs    githistory.Refs // the source's
	packed  githistory.Refs // those of them that come to count without their file
	tracks  *bool           // what tracksHidden found
	objects githistory.Objects
	err     error
}

func openRepository(w *changes.Work, root vpath.Path) *changedRepository {
	r := &changedRepository{work: w, root: root}
	git := root.Child(".git")
	dir, err := w.Stack.OpenSourceDir(git)
	if err != nil {
		return r // the source has no such repository: nothing is lost
	}
	defer dir.Close()
	if !mayAskGit(w) {
		r.err = errRootServer
		return r
	}
	if r.refs, r.err = githistory.ReadRefs(int(dir.Fd())); r.err != nil {
		return r
	}
	if r.packed, r.err = githistory.ReadPacked(int(dir.Fd())); r.err != nil {
		return r
	}
	r.objects, r.err = openObjects(w, git.Child("objects"))
	return r
}

func (r *changedRepository) close() { r.objects.Close() }

// removes says which hidden files a changed ref, or file of refs, lacks.
func (r *changedRepository) removes(ctx context.Context, f *FileDiff, name string) string {
	if r.err == nil && len(r.refs) == 0 {
		return ""
	}
	var lost losses
	err := r.err
	if err == nil {
		lost, err = r.lost(ctx, f, name)
	}
	if reason := lost.reason("git commit"); reason != "" || err == nil || !r.tracksHidden() {
		return reason
	}
	return fmt.Sprintf("git ref, not checked for removed hidden files: %s", vpath.Escape(err.Error()))
}

// tracksHidden reports whether the source's index has hidden files.
func (r *changedRepository) tracksHidden() bool {
	if r.tracks == nil {
		x := r.work.SourceIndex(r.root.Child(".git").Child("index"))
		found := len(hiddenEntries(r.work, x, r.root)) > 0
		r.tracks = &found
	}
	return *r.tracks
}

func (r *changedRepository) lost(ctx context.Context, f *FileDiff, name string) (losses, error) {
	var lost losses
	tips, err := r.tips(f, name)
	if err != nil {
		return lost, err
	}
	for ref, tip := range tips {
		base := r.refs[ref]
		if base == "" {
			base = r.refs["HEAD"]
		}
		if base == "" || base == tip {
			continue
		}
		err := githistory.Changed(ctx, r.objects, base, tip, func(name string, gone bool) bool {
			p, ok := gitindex.TrackedPath(r.root, name)
			return !ok || !r.work.WasHidden(p) || lost.note(p, gone)
		})
		if err != nil {
			return lost, err
		}
	}
	return lost, nil
}

// tips are the refs that the delta's file at f, or the lack of it, gives another
// object than the source does.
func (r *changedRepository) tips(f *FileDiff, name string) (githistory.Refs, error) {
	tips := githistory.Refs{}
	var err error
	switch {
	case strings.HasPrefix(name, refTable):
		return nil, errors.New("the refs are a reftable")
	case f.Status != changes.Deleted:
		err = r.readTips(f, name, tips)
	case r.packed[name] != "":
		tips[name] = r.packed[name]
	}
	for ref, tip := range tips {
		if r.refs[ref] == tip {
			delete(tips, ref)
		}
	}
	if len(tips) > maxChangedRefs {
		return nil, fmt.Errorf("more than %d refs", maxChangedRefs)
	}
	return tips, err
}

// readTips adds what the delta's file at f says.
func (r *changedRepository) readTips(f *FileDiff, name string, tips githistory.Refs) error {
	if f.New == nil || f.New.Mode&record.TypeBits != unix.S_IFREG {
		return errors.New("it is no file")
	}
	file, err := r.work.Stack.OpenDelta(f.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := readShort(file)
	if err != nil {
		return err
	}
	if name == "packed-refs" {
		tips.AddPacked(text)
		return nil
	}
	ref, id := githistory.ParseRef(text)
	if ref != "" && name != "HEAD" { // HEAD changes with each branch that is checked out
		if id = r.refs[ref]; id == "" {
			return fmt.Errorf("it stands for %q", ref)
		}
	}
	if id != "" {
		tips[name] = id
	}
	return nil
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
