package granted_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// modelGrant is a grant that a person made; a zero until is no end.
type modelGrant struct {
	path       string
	permission policy.Permission
	until      time.Time
}

// modelPaths are a file, a hidden file and a directory, with what base permits.
var modelPaths = map[string]struct {
	dir    bool
	look   string // the path that is decided
	always policy.Permission
}{
	"f":    {look: "f", always: policy.View},
	".env": {look: ".env", always: policy.None},
	"src":  {dir: true, look: "src/a/b", always: policy.Read},
}

// TestGrantsAddUp compares random grants, revocations and times with a model that keeps every
// grant: at each moment a path has the strongest permission that is granted then.
func TestGrantsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		var l granted.Paths
		var model []modelGrant
		rules := base
		names := []string{"f", ".env", "src"}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "path")
			c := granted.Change{Path: vpath.Path("/" + name), Dir: modelPaths[name].dir}
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0: // revoke
				left, err := l.ChangeGrants(c, rules, "s", now)
				was := len(model)
				model = without(model, name, now)
				if (err == nil) != (len(model) < was) || err != nil && !errdefs.Is(err, errdefs.NotFound) {
					t.Fatalf("revoke %s: %v", name, err)
				}
				if err == nil {
					rules = left
				}
			case 1, 2: // time passes, perhaps to the moment of the next end
				end, ends := l.NextGrantEnd()
				now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second / 2)
				if ends && rapid.Bool().Draw(t, "to the next end") {
					now = end
				}
			default:
				c.Permission = rapid.SampledFrom([]policy.Permission{policy.View, policy.Read, policy.Write}).Draw(t, "permission")
				c.For = time.Duration(rapid.IntRange(0, 30).Draw(t, "for")) * time.Second / 2
				next, err := l.ChangeGrants(c, rules, "s", now)
				if err != nil {
					t.Fatal(err)
				}
				if next != nil {
					rules = next
				}
				g := modelGrant{path: name, permission: c.Permission}
				if c.For > 0 {
					g.until = now.Add(c.For)
				}
				model = append(model, g)
			}
			rules = l.DropEndedGrants(rules, now)
			checkModel(t, model, rules, now)
			if err := l.CheckGrants(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// without returns the model without the grants of a path that are valid at a time.
func without(model []modelGrant, path string, now time.Time) (left []modelGrant) {
	for _, g := range model {
		if g.path != path || !g.valid(now) {
			left = append(left, g)
		}
	}
	return left
}

func (g modelGrant) valid(now time.Time) bool { return g.until.IsZero() || now.Before(g.until) }

func checkModel(t *rapid.T, model []modelGrant, rules []policy.Rule, now time.Time) {
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range modelPaths {
		want := of.always
		granted := false
		for _, g := range model {
			if g.path == name && g.valid(now) && (!granted || g.permission > want) {
				want, granted = g.permission, true
			}
		}
		if got := p.Decide(vpath.Path("/" + of.look)).Permission; got != want {
			t.Fatalf("%s at %s: %s, want %s\n%v\n%v", of.look, now.Format(time.TimeOnly), got, want, model, rules)
		}
	}
}
