package apply_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// A path of the random tests: few names, so that operations meet.
var names = rapid.SampledFrom([]string{"a", "b", "c", "secret", ".wh.a"})

func drawPath(t *rapid.T) vpath.Path {
	p := vpath.Root
	for _, name := range rapid.SliceOfN(names, 1, 3).Draw(t, "path") {
		p = p.Child(name)
	}
	return p
}

// drawSource makes random files below dir.
func drawSource(t *rapid.T, dir string) {
	for range rapid.IntRange(0, 12).Draw(t, "entries") {
		path := filepath.Join(dir, string(drawPath(t)))
		if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
			continue // below a file
		}
		switch rapid.SampledFrom([]string{"file", "file", "directory", "link", "hard link"}).Draw(t, "kind") {
		case "file":
			_ = os.WriteFile(path, []byte(rapid.StringN(0, 4, 8).Draw(t, "content")), 0o644)
		case "directory":
			_ = os.Mkdir(path, 0o755)
		case "link":
			_ = os.Symlink("a", path)
		case "hard link":
			_ = os.Link(filepath.Join(dir, string(drawPath(t))), path)
		}
	}
}

// actor does random operations as fusefs would let a program: what the policy
// refuses, and what cannot be done, does not happen.
type actor struct {
	t      *rapid.T
	stack  *layer.Stack
	policy *policy.Policy
}

func (a *actor) mayWrite(p vpath.Path) bool { return a.policy.Decide(p).Permission == policy.Write }

func (a *actor) visible(p vpath.Path) bool {
	d := a.policy.Decide(p)
	return max(d.Permission, d.ForDir()) > policy.None
}

// reaches reports whether a program can come to p at all.
func (a *actor) reaches(p vpath.Path) bool {
	for dir := range p.Ancestors() {
		if !a.visible(dir) {
			return false
		}
	}
	return true
}

func (a *actor) step() {
	p := drawPath(a.t)
	if !a.reaches(p) {
		return
	}
	what := rapid.SampledFrom([]string{"write", "write", "create", "mkdir", "remove", "remove all", "rename", "chmod", "symlink", "link", "fifo", "open"}).Draw(a.t, "operation")
	if what == "mkdir" && (a.policy.MayMkdir(p) || a.mayWrite(p)) {
		_, _ = a.stack.Mkdir(p, 0o755)
		return
	}
	if what == "remove all" {
		a.removeAll(p)
		return
	}
	if !a.mayWrite(p) {
		return
	}
	switch what {
	case "write":
		a.write(p)
	case "create":
		if f, _, err := a.stack.Create(p, 0o644); err == nil {
			_ = f.Close()
		}
	case "remove":
		_, _ = a.stack.Unlink(p, false)
	case "rename":
		a.rename(p, drawPath(a.t))
	case "chmod":
		mode := rapid.SampledFrom([]uint32{0o644, 0o755, 0o700}).Draw(a.t, "mode")
		i, err := a.stack.Lookup(p)
		if err == nil && i.IsDir() {
			mode |= 0o700 // else an ordinary user's test cannot look inside
		}
		if err == nil && i.Mode&unix.S_IFMT != unix.S_IFLNK {
			_, _ = a.stack.SetAttr(p, layer.SetAttr{Mode: &mode})
		}
	case "symlink":
		_, _ = a.stack.Symlink(rapid.StringMatching("[a-c]").Draw(a.t, "target"), p)
	case "link":
		if to := drawPath(a.t); a.mayWrite(to) && a.reaches(to) {
			_, _ = a.stack.Link(p, to)
		}
	case "fifo":
		_, _ = a.stack.Mknod(p, unix.S_IFIFO|0o644)
	case "open":
		_, _ = a.stack.CopyUp(p)
	}
}

func (a *actor) write(p vpath.Path) {
	f, _, err := a.stack.Open(p, true)
	if err != nil {
		if f, _, err = a.stack.Create(p, 0o644); err != nil {
			return
		}
	}
	defer f.Close()
	_, _ = f.WriteAt([]byte(rapid.StringN(1, 4, 8).Draw(a.t, "content")), 0)
}

func (a *actor) removeAll(p vpath.Path) {
	info, err := a.stack.Lookup(p)
	if err != nil || !a.visible(p) {
		return
	}
	if !info.IsDir() {
		if a.mayWrite(p) {
			_, _ = a.stack.Unlink(p, false)
		}
		return
	}
	entries, err := a.stack.ReadDir(p)
	if err != nil {
		return
	}
	for _, e := range entries {
		a.removeAll(p.Child(e.Name))
	}
	if a.mayWrite(p) {
		_ = a.stack.Rmdir(p, func(name string) bool { return a.visible(p.Child(name)) })
	}
}

// rename moves if every visible entry may be written at both ends, as fusefs
// asks.
func (a *actor) rename(from, to vpath.Path) {
	if !a.mayWrite(to) || !a.reaches(to) || to.Within(from) || from.Within(to) {
		return
	}
	free := true
	a.walk(from, func(p vpath.Path) { free = free && a.mayWrite(p) && a.mayWrite(p.Rebase(from, to)) })
	if free {
		_, _ = a.stack.Rename(from, to, layer.RenameOptions{Visible: a.visible})
	}
}

// walk calls do for p and everything visible below it.
func (a *actor) walk(p vpath.Path, do func(vpath.Path)) {
	info, err := a.stack.Lookup(p)
	if err != nil || !a.visible(p) {
		return
	}
	do(p)
	if !info.IsDir() {
		return
	}
	entries, err := a.stack.ReadDir(p)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, e := range entries {
		a.walk(p.Child(e.Name), do)
	}
}

// view is what snapshot would give of the whole view.
func (a *actor) view() tree {
	seen := tree{}
	a.walk(vpath.Root, func(p vpath.Path) {
		if p.IsRoot() {
			return
		}
		info, err := a.stack.Lookup(p)
		if err != nil {
			a.t.Fatal(err)
		}
		mode := os.FileMode(info.Mode & 0o777)
		switch info.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			seen[p.Rel()+"/"] = modeNote(mode|os.ModeDir, 0o755)
		case unix.S_IFLNK:
			target, err := a.stack.Readlink(p)
			if err != nil {
				a.t.Fatal(err)
			}
			seen[p.Rel()] = "-> " + target
		case unix.S_IFREG:
			seen[p.Rel()] = a.content(p, info.Size)
			if mode == 0o755 {
				seen[p.Rel()] = "x:" + seen[p.Rel()]
			} else {
				seen[p.Rel()] += modeNote(mode, 0o644)
			}
		default:
			seen[p.Rel()] = (mode | os.ModeNamedPipe).String()
		}
	})
	return seen
}

func (a *actor) content(p vpath.Path, size int64) string {
	f, _, err := a.stack.Open(p, false)
	if err != nil {
		a.t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, size)
	if _, err := f.ReadAt(buf, 0); err != nil {
		a.t.Fatal(err)
	}
	return string(buf)
}

// arena is a bench for one run of a property.
type arena struct {
	*bench
	policy *policy.Policy
}

func newArena(outer *testing.T, t *rapid.T, rules []policy.Rule) (arena, func()) {
	dir, err := os.MkdirTemp("/dev/shm", "arena") // where fsync costs nothing
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: outer, dir: filepath.Join(dir, "source")}
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	drawSource(t, b.dir)
	if b.home, err = record.OpenHomeAt(filepath.Join(dir, "home")); err != nil {
		t.Fatal(err)
	}
	r := recordOf(outer, b.home, b.dir, "fix")
	r.Rules = rules
	if b.box, err = b.home.Create(r); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return arena{b, p}, func() { os.RemoveAll(dir) }
}

// act does random operations and returns the view after them.
func (n arena) act(t *rapid.T) tree {
	var view tree
	n.agent(func(a *agent) {
		who := &actor{t, a.stack, n.policy}
		for range rapid.IntRange(0, 15).Draw(t, "operations") {
			who.step()
		}
		view = who.view()
	})
	return view
}

var everything = []policy.Rule{{Pattern: "**", Permission: policy.Write}}

func TestAppliedSourceEqualsTheView(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, done := newArena(t, rt, everything)
		defer done()
		for range 2 {
			view := n.act(rt)
			if _, err := apply.Changes(t.Context(), n.box, apply.Options{}); err != nil {
				rt.Fatal(err)
			}
			if diff := cmp.Diff(view, snapshot(t, n.dir)); diff != "" {
				rt.Fatalf("source (-view +source):\n%s", diff)
			}
			if left := n.changes(); len(left) != 0 {
				rt.Fatalf("left %q", left)
			}
		}
	})
}

func TestApplyingPartByPartEqualsTheView(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, done := newArena(t, rt, everything)
		defer done()
		view := n.act(rt)
		for left := n.changes(); len(left) > 0; left = n.changes() {
			if rapid.IntRange(0, 3).Draw(rt, "go on inside") == 0 {
				view = n.act(rt)
				continue
			}
			pick := rapid.SampledFrom(left).Draw(rt, "part")
			_, err := apply.Changes(t.Context(), n.box, apply.Options{Paths: []vpath.Path{vpath.Path(pick[2:])}})
			if err != nil {
				rt.Fatalf("apply %s: %v", pick, err)
			}
		}
		if _, err := apply.Changes(t.Context(), n.box, apply.Options{}); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(view, snapshot(t, n.dir)); diff != "" {
			rt.Fatalf("source (-view +source):\n%s", diff)
		}
	})
}

func TestDiscardShowsTheSourceAgain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, done := newArena(t, rt, everything)
		defer done()
		n.act(rt)
		for left := n.changes(); len(left) > 0; left = n.changes() {
			pick := vpath.Path(rapid.SampledFrom(left).Draw(rt, "part")[2:])
			if _, err := apply.Discard(n.box, apply.DiscardOptions{Paths: []vpath.Path{pick}}); err != nil {
				rt.Fatal(err)
			}
		}
		n.agent(func(a *agent) {
			view := (&actor{rt, a.stack, n.policy}).view()
			if diff := cmp.Diff(snapshot(t, n.dir), view); diff != "" {
				rt.Fatalf("view (-source +view):\n%s", diff)
			}
		})
	})
}

// drawRules gives some names another permission than write.
func drawRules(t *rapid.T) []policy.Rule {
	rules := []policy.Rule{{Pattern: "**", Permission: policy.Write}}
	for range rapid.IntRange(1, 3).Draw(t, "rules") {
		pattern := rapid.SampledFrom([]string{"secret", "secret/**", "/a", "/b/**", "/a/b", "c"}).Draw(t, "pattern")
		permission := rapid.SampledFrom([]policy.Permission{policy.None, policy.View, policy.Read, policy.Write}).Draw(t, "permission")
		priority := int32(rapid.IntRange(0, 2).Draw(t, "priority"))
		rules = append(rules, policy.Rule{Pattern: pattern, Permission: permission, Priority: priority})
	}
	return rules
}

func TestNothingOutsideOfWriteChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, done := newArena(t, rt, drawRules(rt))
		defer done()
		before := snapshot(t, n.dir)
		n.act(rt)
		if rapid.Bool().Draw(rt, "rules change") {
			rules := drawRules(rt)
			if err := n.box.Update(func(r *record.Record) error { r.SetRules(rules, ""); return nil }); err != nil {
				rt.Fatal(err)
			}
			var err error
			if n.policy, err = policy.Compile(rules, policy.Options{}); err != nil {
				rt.Fatal(err)
			}
			n.act(rt)
		}
		_, err := apply.Changes(t.Context(), n.box, apply.Options{})
		if err != nil && !errdefs.Is(err, errdefs.Precondition) {
			rt.Fatal(err)
		}
		after := snapshot(t, n.dir)
		for name, content := range union(before, after) {
			p := vpath.Path("/" + strings.TrimSuffix(name, "/"))
			mayMkdir := strings.HasSuffix(name, "/") && n.policy.MayMkdir(p)
			was, had := before[name]
			is, has := after[name]
			if (was != is || had != has) && n.policy.Decide(p).Permission < policy.Write && (had || !mayMkdir) {
				rt.Fatalf("%s (%s) was %q, %v, is %q, %v: %q", name, n.policy.Decide(p).Permission, was, had, is, has, content)
			}
		}
	})
}

func union(a, b tree) tree {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// A person edits the source while the sandbox has its own changes. Whatever is
// applied then, with conflicts and without, no edit is lost.
func TestNoEditOfAPersonIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n, done := newArena(t, rt, everything)
		defer done()
		n.act(rt)
		edits := map[string]string{}
		for i := range rapid.IntRange(1, 4).Draw(rt, "edits") {
			path := filepath.Join(n.dir, string(drawPath(rt)))
			content := "edited by a person " + string(rune('0'+i))
			if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
				continue
			}
			_ = os.MkdirAll(filepath.Dir(path), 0o755)
			if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
				path = filepath.Join(dir, filepath.Base(path)) // the link may go
			}
			_ = os.Remove(path) // breaks hard links
			if os.WriteFile(path, []byte(content), 0o644) == nil {
				edits[path] = content
			}
		}
		for _, c := range append(n.changes(), "  /") {
			_, _ = apply.Changes(t.Context(), n.box, apply.Options{Paths: []vpath.Path{vpath.Path(c[2:])}})
		}
		_, _ = apply.Changes(t.Context(), n.box, apply.Options{})
		for path, content := range edits {
			if got, err := os.ReadFile(path); err != nil || string(got) != content {
				rt.Fatalf("%s was %q, is %q, %v", path, content, got, err)
			}
		}
	})
}
