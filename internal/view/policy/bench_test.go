package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

const manyRules = 10_000

// ruleSets are sets of manyRules rules (a preset's few in the first), and what
// makes each hard.
var ruleSets = []struct {
	name  string
	rules func() []policy.Rule
}{
	{"preset", func() []policy.Rule {
		rules, _ := preset.Rules("agent-safe")
		return rules
	}},
	{"mixed", func() []policy.Rule {
		return rulesOf("/pkg/mod%d/**", "/src/dir%d/file.go", "**/*.ext%d", "**/.env%d*", "secret%d", "build%d/", "/pkg/*/gen%d/*.go")
	}},
	{"below the root", func() []policy.Rule { return rulesOf("/src/dir%d/**") }},
	{"last names", func() []policy.Rule { return rulesOf("name%d") }},
	{"extensions", func() []policy.Rule { return rulesOf("**/*.ext%d") }},
	{"beginnings and ends", func() []policy.Rule { return rulesOf("**/a%d*.go") }},
	{"nested", func() []policy.Rule { return rulesOf("/src/**/a%d/**/b") }},
	{"ends of every length", func() []policy.Rule {
		var rules []policy.Rule
		for i := range manyRules {
			rules = append(rules, rule("**/*"+strings.Repeat("o", i%200)+fmt.Sprint(i)+"o"))
		}
		return rules
	}},
	{"nothing to hold on to", func() []policy.Rule {
		rules := rulesOf("/src/dir%d/**")
		for i := range 1000 {
			rules[i] = rule(fmt.Sprintf("**/*tok%den*", i))
		}
		return rules
	}},
}

func rule(pattern string) policy.Rule {
	return policy.Rule{Pattern: pattern, Permission: policy.None, Priority: 1}
}

// rulesOf numbers the patterns, and adds one that lets everything be read.
func rulesOf(patterns ...string) []policy.Rule {
	rules := make([]policy.Rule, manyRules)
	for i := range rules {
		rules[i] = rule(fmt.Sprintf(patterns[i%len(patterns)], i))
	}
	rules[0] = policy.Rule{Pattern: "**/*", Permission: policy.Read}
	return rules
}

var benchPaths = []vpath.Path{
	"/README.md",
	"/src/dir70/main.go",
	"/pkg/mod14/internal/server/handler_test.go",
	"/vendor/github.com/someone/something/v2/a100.go",
	"/node_modules/left-pad/dist/index.min.js",
	"/src/foo/a8/bar/b",
	"/docs/.env21.local",
	"/a/b/c/d/e/f/g/hooooooooooo",
}

func BenchmarkCompile(b *testing.B) {
	for _, set := range ruleSets {
		b.Run(set.name, func(b *testing.B) {
			rules := set.rules()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := policy.CompileAnew(rules, policy.Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, set := range ruleSets {
		b.Run(set.name, func(b *testing.B) {
			p := compile(b, set.rules())
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p.Decide(benchPaths[i%len(benchPaths)])
			}
		})
	}
}

func BenchmarkDecideChild(b *testing.B) {
	for _, set := range ruleSets {
		b.Run(set.name, func(b *testing.B) {
			s := compile(b, set.rules()).At("/pkg/mod14/internal/server")
			b.ReportAllocs()
			for b.Loop() {
				s.DecideChild("handler_test.go")
			}
		})
	}
}
