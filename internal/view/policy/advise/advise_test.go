package advise_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/advise"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

func hideFlag(t *testing.T, pattern string) policy.Rule {
	t.Helper()
	r, _, err := policy.ParseFlag(policy.OriginHide, policy.None, pattern, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAdviseNamesTheShortestFlagThatWins(t *testing.T) {
	for _, tt := range []struct {
		name, preset string
		hide         []string
		refused      []advise.Refused
		flags, stuck string
	}{
		{
			name: "a directory to be made", preset: "agent-safe",
			refused: []advise.Refused{{Path: "/.venv", Need: policy.Write, Dir: true}},
			flags:   "--write .venv/",
		},
		{
			name: "a hidden file at the root", preset: "development",
			refused: []advise.Refused{{Path: "/.npmrc", Need: policy.Read}},
			flags:   "--read .npmrc",
		},
		{
			name: "a hidden file below", preset: "development",
			refused: []advise.Refused{{Path: "/config/x.pem", Need: policy.Write}},
			flags:   "--write config/x.pem",
		},
		{
			name: "a file below that a rule lets be read", preset: "agent-safe",
			refused: []advise.Refused{{Path: "/config/a b.yaml", Need: policy.Write}},
			flags:   "--write 'a b.yaml'",
		},
		{
			name: "what a flag permits is not named again", preset: "agent-safe",
			refused: []advise.Refused{
				{Path: "/x/y", Need: policy.Write, Dir: true},
				{Path: "/x", Need: policy.Write, Dir: true},
				{Path: "/x/y/f", Need: policy.Write},
			},
			flags: "--write x/",
		},
		{
			name: "a hiding flag", preset: "development", hide: []string{"*.sqlite"},
			refused: []advise.Refused{{Path: "/a/b.sqlite", Need: policy.Read}},
			stuck:   "/a/b.sqlite --hide '*.sqlite' hides it: leave that out",
		},
		{
			name: "a hidden directory", preset: "development",
			refused: []advise.Refused{{Path: "/.ssh", Need: policy.Read, Dir: true}},
			stuck:   `/.ssh none rule "**/.ssh/**" (preset development): change that rule, or name a file in it: --read .ssh/FILE`,
		},
		{
			name: "the policy file", preset: "development",
			refused: []advise.Refused{{Path: policy.ProjectFile, Need: policy.Write}},
			stuck:   "/.agentfense.yaml the policy file is never writable from inside",
		},
		{
			name: "what is permitted now, or cannot be typed", preset: "development",
			refused: []advise.Refused{
				{Path: "/a", Need: policy.Write}, {Path: "/[x].pem", Need: policy.Read}, {Path: "/\x07.pem", Need: policy.Read},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := preset.Rules(tt.preset)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range tt.hide {
				rules = append(rules, hideFlag(t, h))
			}
			a, err := advise.Flags(rules, policy.Options{}, tt.refused, advise.Append)
			if err != nil {
				t.Fatal(err)
			}
			var flags, stuck []string
			for _, f := range a.Flags {
				flags = append(flags, f.String())
				r, _, err := policy.ParseFlag(policy.OriginFlag, f.Permission, f.Pattern, nil)
				if err != nil {
					t.Fatal(err)
				}
				rules = append(rules, r)
			}
			for _, s := range a.Stuck {
				stuck = append(stuck, s.Path.String()+" "+s.Why)
			}
			if got := strings.Join(flags, " "); got != tt.flags {
				t.Errorf("flags %q, want %q", got, tt.flags)
			}
			if got := strings.Join(stuck, "; "); got != tt.stuck {
				t.Errorf("stuck %q, want %q", got, tt.stuck)
			}
			p, err := policy.Compile(rules, policy.Options{Reserved: []vpath.Path{"/state"}})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range tt.refused {
				if d := p.Decide(r.Path); tt.flags != "" && d.Permission < r.Need {
					t.Errorf("%s is %s with the flags", r.Path, d.Permission)
				}
			}
		})
	}
}

func TestAFlagReplacesAnEarlierOneOfItsPattern(t *testing.T) {
	flag := func(p policy.Permission, pattern string) policy.Rule {
		return policy.Rule{Pattern: pattern, Permission: p, Origin: policy.OriginFlag, Source: "--" + p.String()}
	}
	base := policy.Rule{Pattern: "a", Permission: policy.View}
	has := []policy.Rule{base, flag(policy.Read, "a"), flag(policy.Read, "b")}
	refused := []advise.Refused{{Path: "/a", Need: policy.Write}}
	kept, err := advise.Flags(has, policy.Options{}, refused, advise.Append)
	if err != nil || len(kept.Flags) != 0 || len(kept.Stuck) != 1 {
		t.Errorf("beside the earlier flag: %+v, %v; want none, which cannot win", kept, err)
	}
	a, err := advise.Flags(has, policy.Options{}, refused, advise.Replace)
	if err != nil || len(a.Flags) != 1 || a.Flags[0].String() != "--write a" {
		t.Errorf("in its place: %+v, %v; want --write a", a, err)
	}
	want := []policy.Rule{base, flag(policy.Read, "b"), flag(policy.Write, "a")}
	if diff := cmp.Diff(want, advise.Replace(has, flag(policy.Write, "a"))); diff != "" {
		t.Errorf("Replace (-want +got):\n%s", diff)
	}
}

// A flag would show what the policy masks, so none is advised that does.
func TestNoFlagIsAdvisedThatShowsWhatIsMasked(t *testing.T) {
	rules := []policy.Rule{
		{Pattern: "**", Permission: policy.Read},
		{Pattern: "*.env", Permission: policy.Read, Transform: policy.Transform{Redact: policy.Env}, Source: "p.yaml:3"},
	}
	got, err := advise.Flags(rules, policy.Options{}, []advise.Refused{
		{Path: "/a.env", Need: policy.Write}, {Path: "/b", Need: policy.Write}, {Path: "/dir", Need: policy.Write, Dir: true},
	}, advise.Append)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Flags) != 1 || got.Flags[0].Pattern != "b" {
		t.Errorf("flags %v, want --write b", got.Flags)
	}
	if len(got.Stuck) != 2 || got.Stuck[0].Path != "/a.env" || !strings.Contains(got.Stuck[0].Why, `with redact: env (p.yaml:3): a flag would show the content`) {
		t.Errorf("stuck %v", got.Stuck)
	}
}
