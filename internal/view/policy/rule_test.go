package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestPermissionsIncludeTheWeakerOnes(t *testing.T) {
	if policy.None >= policy.View || policy.View >= policy.Read || policy.Read >= policy.Write {
		t.Error("the order is not none < view < read < write")
	}
	var zero policy.Permission
	if zero != policy.None {
		t.Error("the zero permission is not none")
	}
}

func TestNamesAndValuesBelongTogether(t *testing.T) {
	for i, name := range policy.Permissions() {
		p, err := policy.ParsePermission(name)
		if err != nil || int(p) != i || p.String() != name {
			t.Errorf("ParsePermission(%q) = %v, %v", name, p, err)
		}
	}
	for _, name := range policy.PatternTypes() {
		p, err := policy.ParsePatternType(name)
		if err != nil || p == policy.Auto || p.String() != name {
			t.Errorf("ParsePatternType(%q) = %v, %v", name, p, err)
		}
	}
	for _, bad := range []string{"", "auto", "Glob", "regexp"} {
		if _, err := policy.ParsePatternType(bad); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("ParsePatternType(%q) error = %v, want Invalid", bad, err)
		}
	}
	if got := policy.Permission(9).String() + policy.PatternType(9).String() + policy.Origin(9).String(); got != "permission(9)type(9)origin(9)" {
		t.Errorf("values out of range show as %s", got)
	}
}

func TestARuleSurvivesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genRule().Draw(t, "rule")
		want.Pattern = rapid.OneOf(rapid.String(), rapid.Just("caf\xe9"), rapid.Just("")).Draw(t, "pattern")
		want.Source = rapid.SampledFrom([]string{"", "policy.yaml:12"}).Draw(t, "source")
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got policy.Rule
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", text, diff)
		}
	})
}

func TestTheJSONOfARuleIsSmallAndStrict(t *testing.T) {
	text, err := json.Marshal(policy.Rule{Pattern: "*.pem", Type: policy.Glob, Origin: policy.OriginHide, Source: "--hide"})
	want := `{"pattern":"*.pem","permission":"none","type":"glob","origin":"hide","source":"--hide"}`
	if err != nil || string(text) != want {
		t.Errorf("JSON = %s, %v, want %s", text, err, want)
	}
	for _, bad := range []string{`{"permission":"all"}`, `{"permission":3}`, `{"type":"x"}`, `{"origin":"x"}`, `[]`} {
		var r policy.Rule
		if err := json.Unmarshal([]byte(bad), &r); err == nil {
			t.Errorf("%s is accepted as %+v", bad, r)
		}
	}
	for _, bad := range []policy.Rule{{Permission: 9}, {Type: 9}, {Origin: 9}} {
		if text, err := json.Marshal(bad); err == nil {
			t.Errorf("%+v is written as %s", bad, text)
		}
	}
}
