package policyfile_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// What Write has written Load reads again; what it cannot hold it refuses.
func TestFileIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.Custom(func(t *rapid.T) policy.Rule {
			r := policy.Rule{
				Pattern:    rapid.OneOf(rapid.SampledFrom([]string{"a", "*.pem", "/src/**", "true", "0x1f", "~", "- a", "'", "\"", "a: b #c", "\xff", "a\nb", "[", "…"}), rapid.String()).Draw(t, "pattern"),
				Permission: rapid.SampledFrom([]policy.Permission{policy.None, policy.View, policy.Read, policy.Write}).Draw(t, "permission"),
				Type:       rapid.SampledFrom([]policy.PatternType{policy.Auto, policy.Glob, policy.Directory, policy.File}).Draw(t, "type"),
				Priority:   rapid.Int32().Draw(t, "priority"),
			}
			if r.Permission == policy.Read {
				r.Transform = rapid.SampledFrom([]policy.Transform{{}, {Redact: policy.Env}, {Redact: policy.TOML}, {Substitute: "/a b"}, {Substitute: "true"}, {Substitute: "../a"}}).Draw(t, "transform")
			}
			if r.Permission == policy.Write && rapid.Bool().Draw(t, "keep") {
				r.Keep, r.Keys = true, rapid.SampledFrom([]jsonkeys.List{"", "a", "a.*.b\n\"x.y\""}).Draw(t, "keys")
			}
			return r
		})
		want := &policyfile.Document{
			Version: policyfile.Version, Preset: rapid.SampledFrom(append(preset.Names(), "")).Draw(t, "preset"),
			Rules: rapid.SliceOfN(rule, 0, 4).Draw(t, "rules"),
		}
		var text bytes.Buffer
		if err := want.Write(&text); err != nil {
			if !errdefs.Is(err, errdefs.Invalid) || text.Len() > 0 {
				t.Fatalf("%v, %q", err, text.String())
			}
			return
		}
		got, err := policyfile.Load(&text, "policy.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(policy.Rule{}, "Source"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("read again (-want +got):\n%s", diff)
		}
	})
}
