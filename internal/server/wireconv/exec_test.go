package wireconv

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

func TestADenialNamesTheRuleAsItWasWritten(t *testing.T) {
	rules, err := preset.Rules("development")
	if err != nil {
		t.Fatal(err)
	}
	long := slices.IndexFunc(rules, func(r policy.Rule) bool { return secretname.Written(r.Pattern) != r.Pattern })
	if long < 0 {
		t.Fatal("the preset has no pattern that is spelled out")
	}
	sent := encodeDenied([]api.Denied{
		{Path: ".env", Rule: rules[long].Pattern, RuleIndex: long}, {Path: "a", Rule: "*.{a,b}"},
	})
	if got := sent[0].Rule; !strings.Contains(got, "!(") || strings.Contains(got, "{") || int(sent[0].RuleIndex) != long {
		t.Errorf("a preset's rule is told as %q, index %d", got, sent[0].RuleIndex)
	}
	if got := sent[1].Rule; got != "*.{a,b}" {
		t.Errorf("a rule of one's own is told as %q", got)
	}
}
