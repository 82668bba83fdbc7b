package transplant

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun"
)

// Verdict says what becomes of a changed path.
type Verdict int

// The verdicts.
const (
	Take   Verdict = iota
	Drop           // it is hidden: the real history keeps what it has
	Refuse         // the policy does not let the sandbox change it
)

// Plan says what to transplant.
type Plan struct {
	Ref       string // the branch of the sandbox, or cleangit.Detached
	AtBase    bool   // begin at the commit of which the repository was made, not at the branch's
	Committer string // name, address and time, as git stores them
	Judge     func(path string) (v Verdict, why string)
}

// Moved is a commit of the sandbox and the one that was made of it.
type Moved struct {
	*Commit
	Real string // "" if it changes hidden files alone, and so was left out
}

// Stopped is a path of a commit, and why it was left out or stops the transplant.
type Stopped struct {
	Path   string
	Commit string // of the sandbox
	Why    string
	// Conflicts says that the source's branch stands against it, and not the policy.
	Conflicts bool
}

// Transplanted is what a transplant did.
type Transplanted struct {
	Base    string // the commit of the source that it continues
	Tip     string // the last commit that was made; "" if paths stop it
	Moved   []Moved
	Dropped []Stopped // hidden paths
	Refused []Stopped // paths that stop it
	Signed  int       // commits of which the signature is lost
	Present int       // commits that the source's branch has already, from an earlier transplant

	roots []string // commits of the source that commits have as parents
}

// Transplant makes the commits of a branch anew on top of the source's branch, in the repository
// "work". The change of each to its first parent is merged by three-way merges into what its first
// parent became. A parent that is the head of the clean repository becomes the present commit of
// the branch, and an older one the commit that it was made of. A commit that the branch has from an
// earlier transplant is not made again: see present. Paths that stop it are in the result. Errors:
// Precondition if there is nothing to do, or git refuses; those of TakeOut.
func (t *Taken) Transplant(ctx context.Context, p Plan) (result *Transplanted, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	commits, err := t.Of(p.Ref)
	if err != nil {
		return nil, err
	}
	if len(commits) == 0 {
		return nil, errdefs.New(errdefs.Precondition, "%s of the sandbox has no commits that the source does not have", refText(p.Ref))
	}
	if t.source == nil {
		return nil, errdefs.New(errdefs.Precondition, "commits cannot be brought into the source: %w", t.lost)
	}
	process, err := t.git.Start(ctx, "work", "fast-import", "--quiet", "--force", "--done", "--date-format=raw-permissive")
	if err != nil {
		return nil, err
	}
	g := &graft{
		taken: t, plan: p, result: &Transplanted{Base: t.base(p)},
		out: bufio.NewWriter(process.In), in: bufio.NewReader(process.Out),
		became: map[string]string{}, ids: map[string]string{}, words: t.newWords(),
		stopped: map[string]bool{}, rooted: map[string]bool{}, seen: map[string]bool{},
	}
	if g.present, err = t.present(ctx, commits, g.result.Base); err == nil {
		err = g.run(ctx, commits)
	}
	if err != nil {
		process.Kill()
		if complaint := process.Complaint(); complaint != "" {
			err = errdefs.New(errdefs.Precondition, "git fast-import: %s", complaint)
		}
		return nil, err
	}
	if err := process.End(ctx); err != nil {
		return nil, err
	}
	isMade := func(m Moved) bool { return m.Real != "" }
	if !slices.ContainsFunc(g.result.Moved, isMade) && len(g.result.Refused) == 0 {
		if g.result.Present > 0 {
			return g.result, errdefs.New(errdefs.Precondition, "%s of the sandbox has no new commits: the source's branch has all of them from an earlier apply", refText(p.Ref))
		}
		return g.result, errdefs.New(errdefs.Precondition, "the commits change nothing but hidden files, which are left out")
	}
	return g.result, g.checkMerges(ctx, commits[len(commits)-1])
}

func refText(ref string) string {
	if ref == cleangit.Detached {
		return "HEAD"
	}
	return "branch " + strings.TrimPrefix(ref, branches)
}

// base is the commit that stands for the head of the clean repository.
func (t *Taken) base(p Plan) string {
	if p.AtBase {
		return t.Info.Source
	}
	if id := t.source.Refs[t.Info.Branch]; id != "" {
		return id
	}
	return t.source.Head
}

// Continues reports whether the commits that Transplant made have the base among their ancestors:
// otherwise they continue an older commit.
func (t *Taken) Continues(ctx context.Context, r *Transplanted) (bool, error) {
	out, err := t.git.Run(ctx, "work", strings.NewReader(r.Base+"\n^"+r.Tip+"\n"), "rev-list", "--stdin", "--count", "--max-count=1")
	return strings.TrimSpace(out) == "0", err
}

// Pack calls do with a pack of the commits that Transplant made.
func (t *Taken) Pack(ctx context.Context, r *Transplanted, do func(pack io.Reader) error) error {
	revisions := r.Tip + "\n^" + strings.Join(r.roots, "\n^") + "\n"
	in, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := t.git.Pipe(ctx, "work", strings.NewReader(revisions), w, "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q")
		_ = w.CloseWithError(err)
		packed <- err
	}()
	err := do(in)
	_ = in.Close()
	if failure := <-packed; failure != nil && (err == nil || !gitrun.IsBroken(failure)) {
		return failure
	}
	return err
}

// branches begins the names of branches, and cleanRef is the one that Transplant makes.
const (
	branches = "refs/heads/"
	cleanRef = branches + "clean"
)

// errImport says that fast-import has ended; what it complains about says why.
var errImport = errdefs.New(errdefs.Internal, "git fast-import ended early")

// graft is a transplant that goes on.
type graft struct {
	taken   *Taken
	plan    Plan
	result  *Transplanted
	out     *bufio.Writer     // to fast-import
	in      *bufio.Reader     // from fast-import
	became  map[string]string // of a commit of the sandbox: what fast-import calls the new one
	ids     map[string]string // likewise: its id
	words   *ownWords
	present map[string]standing // of commits that the source's branch has already
	seen    map[string]bool     // commits of the sandbox for which the base stands as a parent
	// stopped are the paths of result.Refused, and rooted the commits of result.roots: a sandbox
	// can have very many.
	stopped, rooted map[string]bool
}

func (g *graft) run(ctx context.Context, commits []*Commit) error {
	for i, c := range commits {
		if ctx.Err() != nil {
			return errdefs.New(errdefs.Canceled, "transplant: %w", ctx.Err())
		}
		if at, is := g.present[c.ID]; is {
			g.result.Present++
			g.ids[c.ID] = at.made
			g.words.add(c.ID)
			continue
		}
		if err := g.commit(ctx, c, i+1); err != nil {
			return err
		}
	}
	g.result.Tip = g.ids[commits[len(commits)-1].ID]
	if len(g.result.Refused) > 0 {
		g.result.Tip = ""
	}
	g.out.WriteString("done\n")
	return hostError(g.out.Flush())
}

// parent returns what fast-import calls the commit that a parent became, and its id.
func (g *graft) parent(id string) (name, real string) {
	if name := g.became[id]; name != "" {
		return name, g.ids[id]
	}
	real = g.taken.reals[id]
	if id == g.taken.Info.Head {
		real = g.result.Base
	}
	if at, is := g.present[id]; is {
		real = at.parent
	}
	if real == g.result.Base {
		g.seen[id] = true
	}
	if !g.rooted[real] {
		g.rooted[real] = true
		g.result.roots = append(g.result.roots, real)
	}
	return real, real
}

// commit makes a commit. One that changes hidden files alone becomes its parent.
func (g *graft) commit(ctx context.Context, c *Commit, mark int) error {
	changes := g.judge(c)
	first, id := g.parent(c.Parents[0])
	if len(changes) == 0 && len(c.Changes) > 0 && len(c.Parents) == 1 {
		g.became[c.ID], g.ids[c.ID] = first, id
		g.result.Moved = append(g.result.Moved, Moved{Commit: c})
		return nil
	}
	if c.Signed {
		g.result.Signed++
	}
	message := []byte(plainText(g.words.replace(c.Message, g.ids), c.Encoding))
	fmt.Fprintf(g.out, "commit %s\nmark :%d\nauthor %s\ncommitter %s\n", cleanRef, mark, plainText(c.Author, c.Encoding), g.plan.Committer)
	fmt.Fprintf(g.out, "data %d\n%s\n", len(message), message)
	fmt.Fprintf(g.out, "from %s\n", first)
	parents := map[string]bool{id: true}
	for _, other := range c.Parents[1:] {
		name, id := g.parent(other)
		if !parents[id] {
			parents[id] = true
			fmt.Fprintf(g.out, "merge %s\n", name)
		}
	}
	if err := g.merge(ctx, c, changes); err != nil {
		return err
	}
	fmt.Fprintf(g.out, "\nget-mark :%d\n", mark)
	made, err := g.answer()
	if err != nil {
		return err
	}
	g.became[c.ID], g.ids[c.ID] = fmt.Sprintf(":%d", mark), strings.TrimSpace(made)
	g.words.add(c.ID)
	g.result.Moved = append(g.result.Moved, Moved{c, g.ids[c.ID]})
	return nil
}

// answer reads a line that fast-import answers with.
func (g *graft) answer() (string, error) {
	if err := g.out.Flush(); err != nil {
		return "", errImport
	}
	line, err := g.in.ReadString('\n')
	if err != nil {
		return "", errImport
	}
	return line, nil
}

// judge returns the changes that the policy lets be made, deletions first.
func (g *graft) judge(c *Commit) []Change {
	var changes []Change
	for _, x := range c.Changes {
		v, why := g.plan.Judge(x.Path)
		if v == Take && (x.Old.Mode == modeSubmodule || x.New.Mode == modeSubmodule) {
			v, why = Refuse, "a submodule: its commits are in another repository, so change it in the source"
		}
		switch v {
		case Take:
			changes = append(changes, x)
		case Drop:
			g.result.Dropped = append(g.result.Dropped, Stopped{Path: x.Path, Commit: c.ID, Why: why})
		default:
			g.refuse(c, x, why, false)
		}
	}
	slices.SortStableFunc(changes, func(a, b Change) int { return rank(a) - rank(b) })
	return changes
}

func rank(x Change) int {
	if x.New == (Entry{}) {
		return 0
	}
	return 1
}

// refuse notes that a path stops the transplant, once: what later commits make of it depends on it.
func (g *graft) refuse(c *Commit, x Change, why string, conflicts bool) {
	if g.stopped[x.Path] {
		return
	}
	g.stopped[x.Path] = true
	g.result.Refused = append(g.result.Refused, Stopped{x.Path, c.ID, why, conflicts})
}
