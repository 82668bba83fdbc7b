package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestPropertyAPolicyBelowPermitsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := genRules().Draw(t, "rules")
		for i := range rules {
			rules[i].Origin = policy.OriginRule
		}
		dir := genPath(3).Draw(t, "dir")
		below, err := policy.Below(rules, dir)
		if err != nil {
			t.Fatal(err)
		}
		above, moved := compile(t, rules), compile(t, below)
		for _, path := range rapid.SliceOfN(genPath(3), 1, 30).Draw(t, "paths") {
			if path == policy.ProjectFile || path.Rebase(vpath.Root, dir) == policy.ProjectFile {
				continue // read at most, wherever the root is
			}
			want, got := above.Decide(path.Rebase(vpath.Root, dir)), moved.Decide(path)
			if got.Permission != want.Permission || got.Transform != want.Transform || !path.IsRoot() && got.Traversable != want.Traversable {
				t.Fatalf("%s below %s: %v by %v, want %v", path, dir, got, below, want)
			}
		}
	})
}

func TestBelow(t *testing.T) {
	redactEnv := policy.Transform{Redact: policy.Env}
	rule := func(pattern string, kind policy.PatternType, p policy.Permission, priority int32) policy.Rule {
		return policy.Rule{Pattern: pattern, Type: kind, Permission: p, Priority: priority}
	}
	for _, c := range []struct {
		name string
		in   []policy.Rule
		want []policy.Rule
	}{
		{
			"a rule of any depth stays as it is",
			[]policy.Rule{rule(".env", policy.Auto, policy.None, 7), rule("secrets/", policy.Auto, policy.None, 0)},
			[]policy.Rule{rule("secrets/", policy.Auto, policy.None, 0), rule(".env", policy.Auto, policy.None, 7)},
		},
		{
			"a rule of another directory goes",
			[]policy.Rule{rule("/docs/**", policy.Glob, policy.Write, 0)},
			[]policy.Rule{},
		},
		{
			"a rule of a path below loses its beginning",
			[]policy.Rule{rule("/src/app/keys", policy.Directory, policy.None, 0)},
			[]policy.Rule{rule("/keys/**", policy.Glob, policy.None, 0)},
		},
		{
			"a rule that hides a directory above hides all",
			[]policy.Rule{rule("/src", policy.File, policy.None, 0)},
			[]policy.Rule{rule("**", policy.Glob, policy.None, 0)},
		},
		{
			"a name with a metacharacter stays a name",
			[]policy.Rule{rule("/src/app/a*", policy.File, policy.Read, 0)},
			[]policy.Rule{rule(`/a\*`, policy.Glob, policy.Read, 0)},
		},
		{
			"the order is kept by priorities where patterns alone would change it",
			[]policy.Rule{rule("/src/app/x", policy.File, policy.Read, 0), rule("/src/app/*", policy.Glob, policy.Write, 0)},
			[]policy.Rule{rule("/*", policy.Glob, policy.Write, 0), rule("/x", policy.Glob, policy.Read, 0)},
		},
		{
			"a rule that shows the content still wins over one that redacts it",
			[]policy.Rule{
				{Pattern: "/src/*/**", Type: policy.Glob, Permission: policy.Read, Transform: redactEnv},
				rule("/src/app/**", policy.Glob, policy.Read, 0),
			},
			[]policy.Rule{
				{Pattern: "/**", Type: policy.Glob, Permission: policy.Read, Transform: redactEnv},
				rule("/**", policy.Glob, policy.Read, 1),
			},
		},
	} {
		got, err := policy.Below(c.in, "/src/app")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
