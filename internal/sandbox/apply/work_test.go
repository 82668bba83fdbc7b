package apply_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// bench is a sandbox on a source of the test's own.
type bench struct {
	t    testing.TB
	home *record.Home
	dir  string // the source
	box  *record.Sandbox
}

// newBench makes a source of tree (see build) and a sandbox of it under the
// rules; none: everything may be written.
func newBench(t *testing.T, tree map[string]string, rules ...policy.Rule) *bench {
	t.Helper()
	b := &bench{t: t, home: openHome(t), dir: t.TempDir()}
	build(t, b.dir, tree)
	r := recordOf(t, b.home, b.dir, "fix")
	if len(rules) > 0 {
		r.Rules = rules
	}
	var err error
	if b.box, err = b.home.Create(r); err != nil {
		t.Fatal(err)
	}
	return b
}

// build makes files below dir: "name/" is a directory, "-> target" the content
// of a symbolic link, "x:" before a content makes it executable.
func build(t testing.TB, dir string, tree map[string]string) {
	t.Helper()
	for name, content := range tree {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil {
			err = buildOne(path, name, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func buildOne(path, name, content string) error {
	if strings.HasSuffix(name, "/") {
		return os.MkdirAll(path, 0o755)
	}
	if target, is := strings.CutPrefix(content, "-> "); is {
		return os.Symlink(target, path)
	}
	content, executable := strings.CutPrefix(content, "x:")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil || !executable {
		return err
	}
	return os.Chmod(path, 0o755)
}

// snapshot is the reverse of build, with modes other than the usual added.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			tree[name+"/"] = modeNote(mode, 0o755)
		case mode.IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if mode.Perm() == 0o755 {
				content = append([]byte("x:"), content...)
				mode = 0o644
			}
			tree[name] = string(content) + modeNote(mode, 0o644)
		case mode&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			tree[name] = "-> " + target
			return err
		default:
			tree[name] = mode.String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func modeNote(mode, usual fs.FileMode) string {
	if mode&^fs.ModeDir == usual {
		return ""
	}
	return fmt.Sprintf(" (%v)", mode)
}

// agent lets do act on the sandbox's layers as a program inside would, seeing
// what the policy shows.
func (b *bench) agent(do func(a *agent)) {
	b.t.Helper()
	source, err := b.box.Record().Source.Open()
	if err != nil {
		b.t.Fatal(err)
	}
	defer source.Close()
	stack, err := layer.Open(layer.Options{Source: source, Dir: b.box.LayersDir(), Store: b.home.LayerStore()})
	if err != nil {
		b.t.Fatal(err)
	}
	defer stack.Close()
	p, err := policy.Compile(b.box.Record().Rules, policy.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	do(&agent{b.t, stack, p})
}

// agent makes changes through a layer stack; each fails the test.
type agent struct {
	t      testing.TB
	stack  *layer.Stack
	policy *policy.Policy
}

func (a *agent) check(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// write replaces the content of p, making it if need be.
func (a *agent) write(p vpath.Path, content string) {
	a.t.Helper()
	f, _, err := a.stack.Open(p, true)
	if err != nil {
		f, _, err = a.stack.Create(p, 0o644)
	}
	a.check(err)
	_, err = f.WriteAt([]byte(content), 0)
	a.check(err)
	a.check(f.Close())
	size := int64(len(content))
	_, err = a.stack.SetAttr(p, layer.SetAttr{Size: &size})
	a.check(err)
}

func (a *agent) mkdir(p vpath.Path) {
	a.t.Helper()
	_, err := a.stack.Mkdir(p, 0o755)
	a.check(err)
}

func (a *agent) remove(p vpath.Path) {
	a.t.Helper()
	_, err := a.stack.Unlink(p, false)
	a.check(err)
}

func (a *agent) chmod(p vpath.Path, mode uint32) {
	a.t.Helper()
	_, err := a.stack.SetAttr(p, layer.SetAttr{Mode: &mode})
	a.check(err)
}

func (a *agent) symlink(target string, p vpath.Path) {
	a.t.Helper()
	_, err := a.stack.Symlink(target, p)
	a.check(err)
}

func (a *agent) link(old, p vpath.Path) {
	a.t.Helper()
	_, err := a.stack.Link(old, p)
	a.check(err)
}

func (a *agent) visible(p vpath.Path) bool {
	d := a.policy.Decide(p)
	return max(d.Permission, d.ForDir()) > policy.None
}

// removeAll is rm -rf of what is visible.
func (a *agent) removeAll(p vpath.Path) {
	a.t.Helper()
	info, err := a.stack.Lookup(p)
	a.check(err)
	if !info.IsDir() {
		a.remove(p)
		return
	}
	entries, err := a.stack.ReadDir(p)
	a.check(err)
	for _, e := range entries {
		if a.visible(p.Child(e.Name)) {
			a.removeAll(p.Child(e.Name))
		}
	}
	a.check(a.stack.Rmdir(p, func(name string) bool { return a.visible(p.Child(name)) }))
}

func (a *agent) rename(from, to vpath.Path) {
	a.t.Helper()
	_, err := a.stack.Rename(from, to, layer.RenameOptions{Visible: a.visible})
	a.check(err)
}

// apply applies and wants success.
func (b *bench) apply(paths ...vpath.Path) apply.Result {
	b.t.Helper()
	r, err := apply.Changes(b.t.Context(), b.box, apply.Options{Paths: paths})
	if err != nil {
		b.t.Fatalf("Apply: %v\n%v", err, r)
	}
	return r
}

// outcomes maps each path to its outcome.
func outcomes(r apply.Result) map[string]apply.Outcome {
	m := map[string]apply.Outcome{}
	for _, p := range r.Paths {
		m[string(p.Path)] = p.Outcome
	}
	return m
}

// changes lists the sandbox's changed paths with their letters, by path.
func (b *bench) changes() []string {
	b.t.Helper()
	r, err := review.Open(b.box)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	list := []string{}
	for _, f := range r.Files() {
		list = append(list, f.Status.String()+" "+string(f.Path))
	}
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return list
}

func statOf(t testing.TB, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st
}
