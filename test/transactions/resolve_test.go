package transactions_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/sandbox/apply"
)

// resolution is what becomes of the lines, modes and files that both sides have changed.
type resolution struct {
	how     apply.OnConflict
	sandbox string // in the markers
}

// asks is the resolution of a merge for which nobody asked for one.
var asks = resolution{how: apply.Merge}

// drawResolution draws mostly none.
func drawResolution(rt *rapid.T, b *box) resolution {
	all := []apply.OnConflict{apply.Merge, apply.Merge, apply.Merge, apply.Ours, apply.Theirs, apply.Markers}
	return resolution{rapid.SampledFrom(all).Draw(rt, "resolution"), b.name}
}

// flags returns the options of git merge-file.
func (r resolution) flags() []string {
	switch r.how {
	case apply.Ours:
		return []string{"--ours"}
	case apply.Theirs:
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
	case ours.mode == base.mode || r.how == apply.Theirs:
		n.mode = theirs.mode
		if ours.mode != base.mode {
			how = resolved
		}
	case r.how == apply.Ours:
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
	case conflicts && r.how == apply.Merge:
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
	case apply.Ours:
		return ours, resolved
	case apply.Theirs:
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
