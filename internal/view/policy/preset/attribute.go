package preset

import (
	"fmt"
	"slices"

	"github.com/agentfense/agentfense/internal/view/policy"
)

// Attribute finds out which preset rules begin with, makes it the Source of these,
// and says for people where the rules are from: "preset development and 2 more".
// Clients send a preset as the rules that it is. A preset of one rule, which anybody
// may write, is recognised alone or before rules of flags. Where none is, nothing
// changes, and it returns otherwise.
func Attribute(rules []policy.Rule, otherwise string) string {
	same := func(a, b policy.Rule) bool {
		return a.Pattern == b.Pattern && a.Permission == b.Permission && a.Type == b.Type && a.Priority == b.Priority && a.Origin == b.Origin
	}
	isRule := func(r policy.Rule) bool { return r.Origin == policy.OriginRule }
	best, length := "", 0
	for _, name := range slices.Concat(Names(), FirstNames()) {
		of, err := Rules(name)
		if err == nil && len(of) > length && len(of) <= len(rules) && slices.EqualFunc(of, rules[:len(of)], same) &&
			(len(of) > 1 || !slices.ContainsFunc(rules[1:], isRule)) {
			best, length = name, len(of)
		}
	}
	if best == "" {
		return otherwise
	}
	for i := range rules[:length] {
		rules[i].Source = "preset " + best
	}
	if more := len(rules) - length; more > 0 {
		return fmt.Sprintf("preset %s and %d more", best, more)
	}
	return "preset " + best
}
