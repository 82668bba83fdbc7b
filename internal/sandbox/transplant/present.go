package transplant

import (
	"context"
	"slices"
	"strings"
)

// standing is a commit of the source that has taken the place of one of the sandbox.
type standing struct {
	made   string // by an earlier transplant
	parent string // what stands for it as a parent
}

// present returns those of the commits that base has among its ancestors since an earlier
// transplant. As parents, the last ones are base itself, so that work on top of them is brought to
// the present state of the branch; one with another of them among its descendants is the commit
// that it became. One below them that was left out counts as its first parent. What an undo took
// back, or the owner of the source rewrote, is not present.
func (t *Taken) present(ctx context.Context, commits []*Commit, base string) (map[string]standing, error) {
	if len(t.became) == 0 {
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
	present, isBelow := map[string]standing{}, map[string]bool{}
	for _, c := range slices.Backward(commits) {
		made := t.madeIn(c, ancestors)
		switch {
		case made != "" && isBelow[c.ID]:
			present[c.ID] = standing{made, made}
		case made != "":
			present[c.ID] = standing{made, base}
		}
		if made != "" || isBelow[c.ID] {
			for _, parent := range c.Parents {
				isBelow[parent] = true
			}
		}
	}
	for _, c := range commits {
		if _, is := present[c.ID]; !is && isBelow[c.ID] {
			first := t.reals[c.Parents[0]]
			if s, is := present[c.Parents[0]]; is {
				first = s.made
			}
			present[c.ID] = standing{first, first}
		}
	}
	return present, nil
}

// madeIn returns the commit that an earlier transplant made of c, if it is among the ancestors.
func (t *Taken) madeIn(c *Commit, ancestors map[string]bool) string {
	for _, b := range t.became[c.ID] {
		if ancestors[b.Real] {
			return b.Real
		}
	}
	return ""
}
