package policy_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestCheck(t *testing.T) {
	tests := []struct {
		name  string
		rules []string
		want  []string // "KIND RULE OTHER"
	}{
		{"a sound policy has no warnings", []string{"/**=read", "/out/=write", "*.pem=none@1"}, nil},
		{"no rules are sound", nil, nil},
		{"a rule below a stronger one", []string{"/a/**=none@1", "/a/b/*.go=read"}, []string{"shadowed 1 0"}},
		{"a rule that a file beats", []string{"/a=none glob", "/a=read"}, []string{"shadowed 0 1"}},
		{"a rule with a narrower glob", []string{"*.pem=none@1", "/a/x*.pem=read"}, []string{"shadowed 1 0"}},
		{"a rule with a wider glob counts elsewhere", []string{"/a/*.pem=none@1", "*.pem=read"}, []string{"traversable 1 -1"}},
		{"braces count if one alternative does", []string{"/a/**=none@1", "/{a,b}/c=read"}, nil},
		{"braces do not count if none does", []string{"/a/**=none@1", "/a/{x,y}=read"}, []string{"shadowed 1 0"}},
		{"a rule below a file that is none", []string{"/**=read", "/a=none@1", "/a/b=read"}, []string{"shadowed 2 1"}},
		{"a rule below a none rule that does not win there", []string{"/a=none@1", "/a=view@2", "/a/b=read"}, []string{"shadowed 0 1"}},
		{"the same rule twice", []string{"/a=read", "/a=read"}, []string{"duplicate 1 0"}},
		{"the same pattern written differently", []string{"*.pem=none", "**/*.pem=none glob"}, []string{"nothing 0 -1", "duplicate 1 0"}},
		{"the same pattern with two permissions", []string{"/a=write", "/a=view"}, []string{"tie 0 1"}},
		{"a flag that a none rule beats", []string{"/**=view", "**/.env*=none@100", "--read *.env.local"}, nil},
		{"a flag that a none rule always beats", []string{"/**=view", "**/.env*=none@100", "--read **/.env.*"}, []string{"shadowed 2 1"}},
		{"a flag that names the file counts at the root", []string{"/**=view", "**/.env*=none@100", "--read .env"}, []string{"root-only 2 1"}},
		{"a rule that a flag replaces is meant so", []string{"/a=read", "--write /a*"}, nil},
		{"a rule that opens hidden directories", []string{"/**=read", "**/secrets/**=none@100", "*.md=read@101"}, []string{"traversable 2 1"}},
		{"a file that opens a hidden directory", []string{"/**=read", "/secrets/**=none@1", "/secrets/a/public.key=read@2"}, []string{"traversable 2 1"}},
		{"a rule for any depth opens every directory", []string{"*.md=read"}, []string{"traversable 0 -1"}},
		{"a rule for any depth below a directory", []string{"/src/**/*.go=read"}, []string{"traversable 0 -1"}},
		{"a rule for any depth where all is visible", []string{"/**=view", "*.md=read"}, nil},
		{"wildcards in a literal type", []string{"**/*.pem=none file", "/{a,b}=none directory", "/app/[id].ts=none file"}, []string{"literal 0 -1", "nothing 0 -1", "literal 1 -1"}},
		{"rules that all say none", []string{"/a=none", "--hide b"}, []string{"nothing 0 -1"}},
		{"a space at the end", []string{"/a =read file"}, []string{"space 0 -1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, w := range compile(t, rules(t, tt.rules...)).Check() {
				got = append(got, fmt.Sprintf("%s %d %d", w.Kind, w.Rule, w.Other))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWarningsNameBothRules(t *testing.T) {
	set := presetRules(t, "agent-safe@v1")
	set = append(set,
		policy.Rule{Pattern: "/keys/*.pem", Permission: policy.Read, Source: "p.yaml:4"},
		policy.Rule{Pattern: "*.md", Permission: policy.Read, Priority: 200, Source: "p.yaml:5"},
		policy.Rule{Pattern: "/**", Permission: policy.Read, Type: policy.File, Source: "p.yaml:6"},
	)
	var got []string
	for _, w := range compile(t, set).Check() {
		got = append(got, w.Text)
	}
	want := []string{
		`read rule "/keys/*.pem" (p.yaml:4) never counts: none rule "**/*.pem" (preset agent-safe@v1) matches the same paths, and a higher priority wins`,
		`read rule "*.md" (p.yaml:5) may match below directories that none rule "**/.git/**" (preset agent-safe@v1) and 5 other rules hide: their names show`,
		`read rule "/**" (p.yaml:6): type file takes every character as it is; only a glob has wildcards`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Check (-want +got):\n%s", diff)
	}
}

// The warnings of many rules neither depend on chance nor repeat themselves.
func TestCheckOfManyRules(t *testing.T) {
	for _, set := range ruleSets {
		first, again := compile(t, set.rules()).Check(), compile(t, set.rules()).Check()
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("%s: a second Check (-first +second):\n%s", set.name, diff)
		}
		seen := map[string]bool{}
		for _, w := range first {
			if seen[w.Text] {
				t.Errorf("%s: Check warns twice: %s", set.name, w.Text)
			}
			seen[w.Text] = true
		}
	}
}
