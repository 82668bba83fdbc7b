package wireconv

import (
	"strings"
	"testing"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRulesSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := policy.Rule{
			Pattern:    rapid.SampledFrom([]string{"a", "src/", "**/*.key", "/x/y", "ä b"}).Draw(t, "pattern"),
			Permission: policy.Permission(rapid.IntRange(0, 3).Draw(t, "permission")),
			Type:       policy.PatternType(rapid.IntRange(0, 3).Draw(t, "type")),
			Priority:   rapid.Int32().Draw(t, "priority"),
			Origin:     policy.Origin(rapid.IntRange(0, 2).Draw(t, "origin")),
			Source:     "--write",
			Transform: policy.Transform{
				Redact: policy.Format(rapid.IntRange(0, int(policy.TOML)).Draw(t, "redact")), Substitute: rapid.String().Draw(t, "substitute"),
			},
		}
		sent, err := EncodeRules([]policy.Rule{rule})
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRules(sent, SentNote)
		if err != nil {
			t.Fatal(err)
		}
		rule.Source = SentNote
		if diff := cmp.Diff([]policy.Rule{rule}, got); diff != "" {
			t.Fatal(diff)
		}
	})
	shown := policy.Rule{Pattern: "a", Permission: policy.Read, Transform: policy.Transform{Substitute: "\xff"}, Source: "p.yaml:3"}
	if _, err := EncodeRules([]policy.Rule{shown}); !errdefs.Is(err, errdefs.Invalid) || !strings.HasPrefix(err.Error(), "p.yaml:3: substitute") {
		t.Errorf("a substitute that is no UTF-8: %v", err)
	}
	if _, err := EncodeRules([]policy.Rule{{Pattern: "a", Permission: policy.Write, Keep: true}}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("apply: keep: %v, want Invalid", err)
	}
	if _, err := EncodeRules([]policy.Rule{{Pattern: "\xff"}}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a pattern that is no UTF-8: %v", err)
	}
	newer := &sandboxv1.Sandbox{Permissions: []*sandboxv1.PermissionRule{{Pattern: "a", Permission: 77}}}
	if got, err := DecodeSandbox(newer); !errdefs.Is(err, errdefs.Unsupported) {
		t.Errorf("a permission of a newer server: %v, %v", got, err)
	}
}
