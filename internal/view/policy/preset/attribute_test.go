package preset_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

func TestEachPresetIsRecognised(t *testing.T) {
	for _, name := range slices.Concat(preset.Names(), preset.FirstNames()) {
		want := "preset " + name
		if name == "view-only@v1" || name == "full-access@v1" { // its rules have not changed
			want = strings.TrimSuffix(want, "@v1")
		}
		rules := rulesOf(t, name)
		more := policy.Rule{Pattern: "/x", Permission: policy.Read, Origin: policy.OriginFlag, Source: "sent"}
		for i := range rules {
			rules[i].Source = "sent"
		}
		if got := preset.Attribute(slices.Clone(rules), "sent"); got != want {
			t.Errorf("%s: Attribute = %q", name, got)
		}
		rules = append(rules, more)
		if got := preset.Attribute(rules, "sent"); got != want+" and 1 more" || rules[0].Source != want || rules[len(rules)-1].Source != "sent" {
			t.Errorf("%s with a rule: Attribute = %q, %v", name, got, rules)
		}
		if len(rules) == 2 {
			rules[0].Source, rules[1].Origin = "sent", policy.OriginRule
			if got := preset.Attribute(rules, "sent"); got != "sent" || rules[0].Source != "sent" {
				t.Errorf("%s before a rule of its own: Attribute = %q", name, got)
			}
		}
		if len(rules) > 2 && strings.HasPrefix(name, "development") {
			want := "sent"
			if name == "development" {
				want = "preset nothing and 1 more" // only the names of secrets are left
			}
			if got := preset.Attribute(rules[1:], "sent"); got != want {
				t.Errorf("%s without its first rule: Attribute = %q", name, got)
			}
		}
	}
}
