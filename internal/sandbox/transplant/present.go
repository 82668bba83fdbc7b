package transplant

import (
	"context"
	"slices"
	"strings"
)

// present returns, of the commits, those that base has among its ancestors since an earlier
// transplant, with the commit that stands for each as a parent. For the last ones it is base
// itself, so that work on top of them is brought to the present state of the branch; for one with
// another of them among its descendants it is the commit that it became. What an undo took back, or
// the owner of the source rewrote, is not present.
func (t *Taken) present(ctx context.Context, commits []*Commit, base string) (map[string]string, error) {
	wasMade := func(c *Commit) bool { return t.became[c.ID].Real != "" }
	if !slices.ContainsFunc(commits, wasMade) {
		return nil, nil
	}
	// What was made is newer than the commit that the repository was made of.
	out, err := t.git.Run(ctx, "work", strings.NewReader(base+"\n^"+t.Info.Source+"\n"), "rev-list", "--ignore-missing", "--stdin")
	if err != nil {
		return nil, err
	}
	ancestors := map[string]bool{}
	for id := range strings.FieldsSeq(out) {
		ancestors[id] = true
	}
	present, isBelow := map[string]string{}, map[string]bool{}
	for _, c := range slices.Backward(commits) {
		real := t.became[c.ID].Real
		isPresent := ancestors[real]
		switch {
		case isPresent && isBelow[c.ID]:
			present[c.ID] = real
		case isPresent:
			present[c.ID] = base
		}
		if isPresent || isBelow[c.ID] {
			for _, parent := range c.Parents {
				isBelow[parent] = true
			}
		}
	}
	return present, nil
}
