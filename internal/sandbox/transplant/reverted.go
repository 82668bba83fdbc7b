package transplant

import (
	"context"
	"strings"
)

// checkMerges refuses commits that, by merges, take paths from an older commit of the source than
// their newest one. Merged into the source's branch they would set these paths back: hidden and
// read-only ones too, although no commit changes them.
func (g *graft) checkMerges(ctx context.Context, last *Commit) error {
	r := g.result
	if len(r.Refused) > 0 || len(r.roots) < 2 {
		return nil
	}
	newest, err := g.taken.git.Run(ctx, "work", nil, append([]string{"merge-base", "--independent"}, r.roots...)...)
	if err != nil {
		return err
	}
	changed := map[string]bool{}
	for _, m := range r.Moved {
		for _, x := range m.Changes {
			v, _ := g.plan.Judge(x.Path)
			changed[x.Path] = changed[x.Path] || v == Take
		}
	}
	for root := range strings.FieldsSeq(newest) {
		out, err := g.taken.git.Run(ctx, "work", nil, "diff-tree", "-r", "-z", "--name-only", "--no-renames", root, r.Tip)
		if err != nil {
			return err
		}
		for path := range strings.SplitSeq(out, "\x00") {
			if path != "" && !changed[path] {
				g.refuse(last, Change{Path: path}, "no commit changes it, but a merge would set it back to an older version", false)
			}
		}
	}
	if len(r.Refused) > 0 {
		r.Tip = ""
	}
	return nil
}
