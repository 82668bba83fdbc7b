package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// maxMatched bounds how many pairs of a rule and a path unmatched looks at:
// about a second. Beyond it nothing is said.
const maxMatched = 1 << 19

// unmatched returns the indexes of the rules that match nothing below dir,
// where a name is perhaps misspelt. Those of a preset are meant for every
// directory and do not count. nil: there is too much to look at.
func unmatched(dir string, rules []policy.Rule) ([]int, error) {
	left := []int{}
	for i, r := range rules {
		if !strings.HasPrefix(r.Source, "preset ") {
			left = append(left, i)
		}
	}
	p, err := compileSome(rules, left)
	if err != nil {
		return nil, err
	}
	looked := 0
	err = fs.WalkDir(os.DirFS(dir), ".", func(rel string, _ fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // an unreadable directory must not hide the rest
		}
		path, err := vpath.Parse(filepath.Join("/", rel))
		if err != nil {
			return err
		}
		if looked += len(left); len(left) == 0 || looked > maxMatched {
			return fs.SkipAll
		}
		found := p.Matching(path)
		if len(found) == 0 {
			return nil
		}
		for _, i := range slices.Backward(found) {
			left = slices.Delete(left, i, i+1)
		}
		p, err = compileSome(rules, left)
		return err
	})
	if looked > maxMatched {
		return nil, err
	}
	return left, err
}

// compileSome compiles the rules with the indexes given.
func compileSome(rules []policy.Rule, indexes []int) (*policy.Policy, error) {
	some := make([]policy.Rule, len(indexes))
	for i, index := range indexes {
		some[i] = rules[index]
	}
	return policy.Compile(some, policy.Options{})
}
