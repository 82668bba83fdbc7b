package transactions_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// resolution is what becomes of the lines, modes and files that both sides have changed.
type resolution struct {
	how     conflict.Resolution
	sandbox string // in the markers
}

// asks is the resolution of a merge for which nobody asked for one.
var asks = resolution{how: conflict.Merge}

// drawResolution draws one, or none.
func drawResolution(rt *rapid.T, b *box) resolution {
	all := []conflict.Resolution{conflict.Merge, conflict.Ours, conflict.Theirs, conflict.Markers}
	return resolution{rapid.SampledFrom(all).Draw(rt, "resolution"), b.name}
}

// contradict changes a file in a sandbox and in the source, and applies it.
func (w *world) contradict(rt *rapid.T) {
	b, sb := w.anyBox(rt)
	p, ok := w.changeInside(rt, b, sb)
	if !ok {
		return
	}
	for _, e := range w.drawChange(rt, p, w.src[p]) {
		w.doSource(rt, e)
	}
	w.applyPaths(rt, b, sb, []string{p}, drawResolution(rt, b))
}

// changeInside changes in a sandbox a file that has not changed in the source.
func (w *world) changeInside(rt *rapid.T, b *box, sb *record.Sandbox) (p string, ok bool) {
	view := b.view(w.src)
	var both []string
	for _, p := range parentsFirst(view) {
		if view[p].isFile() && w.src[p].isFile() && b.isFresh(w.src, p) && b.mayWrite(p) {
			both = append(both, p)
		}
	}
	if len(both) == 0 {
		return "", false
	}
	p = rapid.SampledFrom(both).Draw(rt, "file")
	w.inside(rt, sb, func(s *layer.Stack) {
		for _, e := range w.drawChange(rt, p, view[p]) {
			w.must(rt, w.do(b, s, e))
		}
	})
	return p, true
}

// drawChange draws a change of the content or the mode of a file, or of both.
func (w *world) drawChange(rt *rapid.T, p string, n node) []edit {
	var edits []edit
	what := rapid.SampledFrom([]string{"content", "content", "mode", "both", "binary"}).Draw(rt, "what")
	if what != "mode" {
		if n.text = w.drawText(rt, n.text); what == "binary" {
			n.text = w.binary()
		}
		edits = append(edits, edit{what: "put", path: p, node: n})
	}
	if what != "content" {
		n.mode = drawMode(rt, n)
		edits = append(edits, edit{what: "chmod", path: p, node: n})
	}
	return edits
}

// flags returns the options of git merge-file.
func (r resolution) flags() []string {
	switch r.how {
	case conflict.Ours:
		return []string{"--ours"}
	case conflict.Theirs:
		return []string{"--theirs"}
	}
	return []string{"-L", "source", "-L", "base", "-L", "sandbox " + r.sandbox}
}

// merged is how two versions of a file were merged.
type merged rune

const (
	impossible merged = 'i'
	clean      merged = 'c'
	resolved   merged = 'r' // one side has lost something
)

// merge merges two versions of a file, as git does.
func (r resolution) merge(base, ours, theirs node) (n node, how merged) {
	if !base.byHash { // the content of the base was not recorded
		return r.whole(ours, theirs)
	}
	n, how = ours, clean
	switch {
	case ours.mode == theirs.mode || theirs.mode == base.mode:
	case ours.mode == base.mode || r.how == conflict.Theirs:
		n.mode = theirs.mode
		if ours.mode != base.mode {
			how = resolved
		}
	case r.how == conflict.Ours:
		how = resolved
	default:
		return node{}, impossible
	}
	switch {
	case theirs.text == base.text:
		return n, how // whatever ours is
	case ours.text == base.text, ours.text == theirs.text:
		n.text = theirs.text
		return n, how
	case !base.isText() || !ours.isText() || !theirs.isText():
		return r.whole(ours, theirs)
	}
	text, conflicts := r.gitMergeFile(base.text, ours.text, theirs.text)
	switch {
	case conflicts && r.how == conflict.Merge:
		return node{}, impossible
	case conflicts:
		how = resolved
	}
	n.text = text
	return n, how
}

// whole takes one of two versions that are not merged by lines.
func (r resolution) whole(ours, theirs node) (node, merged) {
	switch r.how {
	case conflict.Ours:
		return ours, resolved
	case conflict.Theirs:
		return theirs, resolved
	}
	return node{}, impossible
}

// gitMergeFile merges two versions of a text, and says whether they contradict each other.
func (r resolution) gitMergeFile(base, ours, theirs string) (text string, conflicts bool) {
	dir, err := os.MkdirTemp("/dev/shm", "merge")
	if err != nil {
		panic(err)
	}
	defer removeDir(dir)
	for name, text := range map[string]string{"ours": ours, "base": base, "theirs": theirs} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
	run := func(flags ...string) (string, bool) {
		cmd := exec.Command("git", append(append([]string{"merge-file", "-p"}, flags...), "ours", "base", "theirs")...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() < 0 || exit.ExitCode() > 127) {
			panic(fmt.Sprintf("git merge-file: %v", err)) // a number of conflicts is no error
		}
		return string(out), err != nil
	}
	text, conflicts = run()
	if conflicts {
		text, _ = run(r.flags()...)
	}
	return text, conflicts
}
