package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// maxEntries bounds how many entries entryWarnings looks at.
const maxEntries = 50_000

// unlikelyName is one that no rule spells out.
const unlikelyName = "\x01"

// entryWarnings warns of rules that name a directory of dir and mean only the
// entry itself, where what is in it is shown less. Rules of a preset do not count.
func entryWarnings(dir string, p *policy.Policy) []policy.Warning {
	var found []policy.Warning
	for i, r := range p.Rules() {
		path, anchored, ok := r.EntryOnly()
		if !ok || strings.HasPrefix(r.Source, "preset ") {
			continue
		}
		at, ok := directoryOf(dir, path, anchored)
		if !ok || p.Decide(at.Child(unlikelyName)).Permission >= r.Permission {
			continue
		}
		written := strings.TrimRight(r.Pattern, "/") + "/"
		how := "write " + vpath.Quote(written)
		if r.Type == policy.File {
			how = "write type: directory"
		}
		found = append(found, policy.Warning{
			Kind: policy.WarnEntry, Rule: i, Other: policy.NoRule,
			Text: fmt.Sprintf("%s: %s is a directory here, and the rule means its entry alone, not what is in it; for all below it %s", r, at, how),
		})
	}
	return found
}

// directoryOf returns the directory of dir that a pattern of type file names: at
// the root, or else, if it is not tied to it, the first at any depth.
func directoryOf(dir string, path vpath.Path, anchored bool) (vpath.Path, bool) {
	if info, err := os.Lstat(filepath.Join(dir, path.Rel())); err == nil && info.IsDir() {
		return path, true
	}
	if anchored {
		return "", false
	}
	var at vpath.Path
	looked := 0
	err := fs.WalkDir(os.DirFS(dir), ".", func(rel string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // an unreadable directory must not hide the rest
		}
		if looked++; looked > maxEntries {
			return fs.SkipAll
		}
		if !d.IsDir() || d.Name() != path.Base() {
			return nil
		}
		if at, err = vpath.Parse(rel); err != nil {
			return err
		}
		return fs.SkipAll
	})
	return at, err == nil && at != ""
}
