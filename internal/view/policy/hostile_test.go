package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestPoliciesThatCannotBeMatchedInBoundedTimeAreRefused(t *testing.T) {
	numbered := func(n int, format string) []policy.Rule {
		out := make([]policy.Rule, n)
		for i := range out {
			out[i] = rule(fmt.Sprintf(format, i))
		}
		return out
	}
	tests := []struct {
		name  string
		rules []policy.Rule
		want  string
	}{
		{"a hundred thousand rules", numbered(100_000, "/dir%d/**"), "policy of more than 65536 patterns"},
		{"braces that multiply", numbered(70, "/%d"+strings.Repeat("{a,b}", 10)), "policy of more than 65536 patterns"},
		{"thousands of globs without a beginning or an end", numbered(5000, "*a%dz*"), "one by one"},
		{"thousands of globs with the same beginning", numbered(5000, "a*%d*"), "one by one"},
		{"every word over two letters as nested two-star elements", words(12), "one by one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policy.Compile(tt.rules, policy.Options{})
			if !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Compile error = %v, want Invalid with %q", err, tt.want)
			}
		})
	}
}

// words returns the pattern **/w/**/w/… for each word of the letters a and b.
func words(length int) []policy.Rule {
	patterns := []string{""}
	for range length {
		var longer []string
		for _, p := range patterns {
			longer = append(longer, p+"**/a/", p+"**/b/")
		}
		patterns = longer
	}
	out := make([]policy.Rule, len(patterns))
	for i, p := range patterns {
		out[i] = rule(p)
	}
	return out
}

// hostileRules are as bad as Compile allows, hostilePath makes them bad.
func hostileRules() []policy.Rule {
	out := words(8)
	for i := range 500 {
		out = append(out, rule("**/*"+strings.Repeat("a*", i%100+1)+strings.Repeat("?", i/100)+"/**/x"))
	}
	return append(out, rule(strings.Repeat("**/a/", 15)+"x"))
}

var hostilePath = vpath.Path(strings.Repeat("/a/b", 50) + "/" + strings.Repeat("a", 255) + "/a/a")

func TestTheWorstThatCompilesIsStillMatched(t *testing.T) {
	p := compile(t, hostileRules())
	p.Decide(hostilePath)
	deep := vpath.Path(strings.Repeat("/a", 2000))
	p = compile(t, []policy.Rule{rule(strings.Repeat("**/a/", 15) + "**/x"), {Pattern: "**/*", Permission: policy.Read}})
	if d := p.Decide(deep); d.Permission != policy.Read {
		t.Errorf("a path of 2,000 elements is %s", d.Permission)
	}
	if d := p.Decide(deep + "/x"); d.Permission != policy.None {
		t.Errorf("x below it is %s", d.Permission)
	}
}

func TestDecideNeverFailsWhateverItIsGiven(t *testing.T) {
	p := compile(t, rules(t, "/**=read", "/a/=none"))
	for _, path := range []vpath.Path{"", "//", "a", "/a//", "\x00", "/\xff\xfe"} {
		p.Decide(path)
	}
	if p.Decide("//a//b").Permission != policy.None || p.Decide("").Permission != policy.Read {
		t.Error("an uncleaned path escapes the rules")
	}
}

func BenchmarkHostile(b *testing.B) {
	p := compile(b, hostileRules())
	for b.Loop() {
		p.Decide(hostilePath)
	}
}

// FuzzCompile feeds hostile patterns and paths: whatever compiles decides alike
// by the trie, by a state and by trying every rule.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{"**/*.pem", "{a,b}/**", "a[!b]/", `\*`, "/**/a/**", "*\xff", "./x/../y", "{,{,a}}", "[^", "**/**//*"} {
		f.Add(s, "/a/b.pem", uint8(1))
		f.Add(s, "/\xff/a", uint8(7))
	}
	f.Fuzz(func(t *testing.T, pattern, text string, bits uint8) {
		path, err := vpath.Parse(text)
		if err != nil {
			return
		}
		r := policy.Rule{Pattern: pattern, Permission: policy.Read, Type: policy.PatternType(bits % 4)}
		p, err := policy.Compile([]policy.Rule{r}, policy.Options{})
		if err != nil {
			if !errdefs.Is(err, errdefs.Invalid) {
				t.Fatalf("Compile(%q) error = %v, want Invalid", pattern, err)
			}
			return
		}
		d := p.Decide(path)
		if got := len(p.Matching(path)) == 1; got != (d.Permission == policy.Read) {
			t.Fatalf("%q at %q: %s, but trying it says %v", pattern, path, d.Permission, got)
		}
		s := p.At(vpath.Root)
		for name := range path.Elements() {
			if d.Permission == policy.Read && s.Decision().ForDir() == policy.None {
				t.Fatalf("%q matches %q below a hidden directory", pattern, path)
			}
			s = s.Child(name)
		}
		if s.Decision() != d {
			t.Fatalf("%q at %q: state %v, Decide %v", pattern, path, s.Decision(), d)
		}
		p.Check()
		p.Explain(path)
	})
}
