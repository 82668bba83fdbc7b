package policy_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// TestEarlierPoliciesComeBack checks that any policies come back from their JSON as they were.
func TestEarlierPoliciesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.Custom(func(t *rapid.T) policy.Rule {
			return policy.Rule{
				Pattern: rapid.SampledFrom([]string{"/a", "/b", "**", "\xfe"}).Draw(t, "pattern"), Permission: rapid.SampledFrom([]policy.Permission{policy.None, policy.Read, policy.Write}).Draw(t, "permission"),
				Type: policy.File, Source: rapid.SampledFrom([]string{"", "policy grant"}).Draw(t, "source"),
			}
		})
		want := policy.Earlier(rapid.SliceOf(rapid.SliceOfN(rule, 1, 6)).Draw(t, "policies"))
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got policy.Earlier
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	})
}

// TestEarlierPoliciesTakeTheRoomOfTheirDifferences checks that a grant, and its end, takes the room
// of a rule, however many rules there are.
func TestEarlierPoliciesTakeTheRoomOfTheirDifferences(t *testing.T) {
	const rules, grants = 200, 500
	var base []policy.Rule
	for i := range rules {
		base = append(base, policy.Rule{Pattern: fmt.Sprint("/secret", i), Source: "policy.yaml"})
	}
	grant := func(i int) policy.Rule {
		return policy.Rule{Pattern: fmt.Sprint("/granted", i), Permission: policy.Read, Type: policy.File, Source: "policy grant"}
	}
	growing, ending := policy.Earlier{base}, policy.Earlier{base}
	for i := range grants {
		growing = append(growing, append(append([]policy.Rule{}, growing[i]...), grant(i)))
		ending = append(ending, append(append([]policy.Rule{}, base...), grant(i)))
	}
	for name, e := range map[string]policy.Earlier{"grants that stay": growing, "grants that end": ending} {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		const ofRule = 150 // bytes
		if most := (rules + grants) * ofRule; len(text) > most {
			t.Errorf("%s: %d bytes, want at most %d", name, len(text), most)
		}
	}
}

// TestEarlierPoliciesOfAnOlderRecord checks that lists of rules are read, and that a difference
// from rules that there are not is refused.
func TestEarlierPoliciesOfAnOlderRecord(t *testing.T) {
	const list = `[{"pattern":"/a","permission":"read"},{"pattern":"/b","permission":"none"}]`
	var got policy.Earlier
	if err := json.Unmarshal([]byte(`[`+list+`,`+list+`]`), &got); err != nil || len(got) != 2 || len(got[1]) != 2 || got[1][0].Permission != policy.Read {
		t.Errorf("%+v, %v, want both policies", got, err)
	}
	for _, text := range []string{
		`[{"without":[0]}]`, `[` + list + `,{"without":[2]}]`, `[` + list + `,{"without":[-1]}]`, `[` + list + `,{"without":[1,0]}]`, `[` + list + `,{"without":[1,1]}]`,
	} {
		if err := json.Unmarshal([]byte(text), new(policy.Earlier)); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v, want Invalid", text, err)
		}
	}
}
