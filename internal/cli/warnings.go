package cli

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// maxNotes is how many mounts, or warnings, are named.
const maxNotes = 5

// sayUnshown says which file systems mounted in the source are not shown.
func (e *env) sayUnshown(ctx context.Context, b backend.Backend, sb backend.Sandbox) error {
	mounts, err := b.Unshown(ctx, sb)
	if err != nil || len(mounts) == 0 {
		return err
	}
	var names []string
	for _, p := range mounts[:min(len(mounts), maxNotes)] {
		names = append(names, shown(p))
	}
	more := ""
	if n := len(mounts) - len(names); n > 0 {
		more = " and " + plural(n, "more mount")
	}
	e.say("not shown: what is mounted below the source, at %s%s; a directory is empty and read-only there, a file unreadable (to show it, see --mount)", strings.Join(names, ", "), more)
	return nil
}

// isAtRoot reports whether the directory has something at the path.
func (o *sandboxOptions) isAtRoot(pattern string) bool {
	_, err := os.Lstat(filepath.Join(cmp.Or(o.Dir, "."), pattern))
	return err == nil
}

// sayWarnings says what policy check would of the rules that the flags give:
// by themselves, or by --policy.
func (o *sandboxOptions) sayWarnings(e *env, rules []policy.Rule) error {
	isGiven := func(r policy.Rule) bool {
		return r.Origin != policy.OriginRule || o.Policy != "" && !strings.HasPrefix(r.Source, "preset ")
	}
	if !slices.ContainsFunc(rules, isGiven) {
		return nil
	}
	given := func(index int) bool { return index != policy.NoRule && isGiven(rules[index]) }
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		return err
	}
	said := 0
	for _, w := range p.Check() {
		opens := w.Kind == policy.WarnTraversable && given(w.Other)
		if !given(w.Rule) && !opens {
			continue
		}
		if w.Kind == policy.WarnRootOnly && o.isAtRoot(rules[w.Rule].Pattern) {
			continue // the file at the root is meant
		}
		if said++; said > maxNotes {
			e.say("… and more; `agentfense policy check` lists the warnings of a file")
			return nil
		}
		e.say("warning: %s", w.Text)
	}
	return nil
}
