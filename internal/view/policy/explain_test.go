package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestExplain(t *testing.T) {
	tests := []struct {
		name     string
		rules    []string
		path     vpath.Path
		matches  []policy.Match
		from     vpath.Path
		inherits int
		below    int
	}{
		{
			name: "the winner comes first and each loser says why", path: "/a/b.x",
			rules: []string{"/**=read", "/a/*.x=none", "/a/*=write", "/a/=view", "/a/b.x=write", "/a/*?x=read", "/**=none@1"},
			matches: []policy.Match{
				{Rule: 6, Why: "wins: a higher priority wins"},
				{Rule: 4, Why: "loses: a higher priority wins"},
				{Rule: 3, Why: "loses: a higher priority wins"},
				{Rule: 1, Why: "loses: a higher priority wins"},
				{Rule: 2, Why: "loses: a higher priority wins"},
				{Rule: 5, Why: "loses: a higher priority wins"},
				{Rule: 0, Why: "loses: a higher priority wins"},
			},
			inherits: -1, below: -1,
		},
		{
			name: "a type wins", rules: []string{"/a=read", "/a/=view"}, path: "/a",
			matches:  []policy.Match{{0, "wins: file wins over directory, directory over glob"}, {1, "loses: file wins over directory, directory over glob"}},
			inherits: -1, below: 1,
		},
		{
			name: "a literal beginning wins", rules: []string{"/a*=read", "/ab*=view"}, path: "/abc",
			matches:  []policy.Match{{1, "wins: a longer literal beginning wins"}, {0, "loses: a longer literal beginning wins"}},
			inherits: -1, below: -1,
		},
		{
			name: "fewer wildcards win", rules: []string{"/*?=read", "/*=view"}, path: "/a",
			matches:  []policy.Match{{1, "wins: fewer wildcards win"}, {0, "loses: fewer wildcards win"}},
			inherits: -1, below: -1,
		},
		{
			name: "the stricter wins", rules: []string{"/*a=read", "/*=view"}, path: "/a",
			matches:  []policy.Match{{1, "wins: of equal rules the stricter wins"}, {0, "loses: of equal rules the stricter wins"}},
			inherits: -1, below: -1,
		},
		{
			name: "the same rule twice", rules: []string{"/a=read", "/a=read"}, path: "/a",
			matches:  []policy.Match{{0, "wins: of equal rules the first wins"}, {1, "loses: of equal rules the first wins"}},
			inherits: -1, below: -1,
		},
		{
			name: "a flag wins over a rule that is not none", rules: []string{"/a=read@9", "--write /a*"}, path: "/a",
			matches:  []policy.Match{{1, "wins: a flag is above a rule that is not none"}, {0, "loses: a flag is above a rule that is not none"}},
			inherits: -1, below: -1,
		},
		{
			name: "a none rule wins over a flag", rules: []string{"/a=none", "--write /a*"}, path: "/a",
			matches: []policy.Match{
				{0, "wins: a none rule is above a flag that does not name exactly this file"},
				{1, "loses: a none rule is above a flag that does not name exactly this file"},
			},
			inherits: -1, below: -1,
		},
		{
			name: "a flag that names the file", rules: []string{"/a=none", "--write a"}, path: "/a",
			matches: []policy.Match{
				{1, "wins: a flag that names exactly this file is above all rules but --hide"},
				{0, "loses: a flag that names exactly this file is above all rules but --hide"},
			},
			inherits: -1, below: 1,
		},
		{
			name: "hiding", rules: []string{"--write /a", "--hide a"}, path: "/a",
			matches:  []policy.Match{{1, "wins: --hide is above all other rules"}, {0, "loses: --hide is above all other rules"}},
			inherits: -1, below: -1,
		},
		{
			name: "one rule alone", rules: []string{"/a=read"}, path: "/a",
			matches: []policy.Match{{0, "wins: no other rule matches"}}, inherits: -1, below: -1,
		},
		{
			name: "what an ancestor hides", rules: []string{"/**=read", "/a=none"}, path: "/a/b/c",
			matches: []policy.Match{{0, "wins: no other rule matches"}},
			from:    "/a", inherits: 1, below: -1,
		},
		{
			name: "why a hidden directory is traversable", rules: []string{"/a/=none", "/a/b/c=read"}, path: "/a/b",
			matches:  []policy.Match{{0, "wins: no other rule matches"}},
			inherits: -1, below: 1,
		},
		{
			name: "nothing matches", path: "/a", matches: []policy.Match{}, inherits: -1, below: -1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := compile(t, rules(t, tt.rules...))
			want := policy.Explanation{
				Path: tt.path, Decision: p.Decide(tt.path), Matches: tt.matches,
				Inherited: tt.inherits, Ancestor: tt.from, Below: tt.below,
			}
			if diff := cmp.Diff(want, p.Explain(tt.path)); diff != "" {
				t.Errorf("Explain(%s) (-want +got):\n%s", tt.path, diff)
			}
		})
	}
}

func TestExplainOfAReservedPath(t *testing.T) {
	p := compile(t, rules(t, "/**=read"), "/state")
	e := p.Explain("/state/x")
	if e.Decision.Permission != policy.None || e.Decision.Rule != policy.NoRule || e.Inherited != policy.NoRule {
		t.Errorf("Explain = %+v", e)
	}
}

func TestMatchingListsEveryRule(t *testing.T) {
	p := compile(t, rules(t, "/b=none", "/**=read", "{a,x}=none", "--hide *"))
	if diff := cmp.Diff([]int{1, 2, 3}, p.Matching("/a")); diff != "" {
		t.Errorf("Matching (-want +got):\n%s", diff)
	}
}
