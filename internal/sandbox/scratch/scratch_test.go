package scratch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]scratch.Path{
		"node_modules":         "/node_modules",
		"./a//b/":              "/a/b",
		"a:b,c=\\d":            "/a:b,c=\\d",
		"\xff":                 "/\xff",
		".github":              "/.github",
		"sub/.agentfense.yaml": "/sub/.agentfense.yaml",
	} {
		got, err := scratch.Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %q, %v, want %q", text, got, err, want)
			continue
		}
		stored, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var again scratch.Path
		if err := json.Unmarshal(stored, &again); err != nil || again != got {
			t.Errorf("%q is read again as %q, %v", stored, again, err)
		}
	}
	for text, want := range map[string]string{
		"":                       "no directory",
		"/node_modules":          "absolute",
		"../x":                   `".."`,
		"a/..":                   `".."`,
		".":                      "workspace itself",
		"./":                     "workspace itself",
		".git":                   "git's directory",
		"a/.git/hooks":           "git's directory",
		".agentfense.yaml":       "policy file",
		"a\x00b":                 "NUL",
		strings.Repeat("a", 256): "longer than",
	} {
		if got, err := scratch.Parse(text); !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %q, %v, want Invalid with %q", text, got, err, want)
		}
	}
	var p scratch.Path
	if err := json.Unmarshal([]byte(`"/abs"`), &p); err == nil {
		t.Error("a stored absolute path is accepted")
	}
}

func TestParseAll(t *testing.T) {
	if got, err := scratch.ParseAll([]string{"a", "ab", "c/a"}); err != nil || len(got) != 3 {
		t.Errorf("got %q, %v", got, err)
	}
	var many []string
	for i := range 33 {
		many = append(many, fmt.Sprint("d", i))
	}
	for _, texts := range [][]string{{"a", "a"}, {"a", "a/b"}, {"a/b", "c", "a"}, {"a", ""}, many} {
		if got, err := scratch.ParseAll(texts); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q: %q, %v, want Invalid", texts, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"a", "./a/b/", ".git", "..", "/", "a//b", "\xff", "a\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := scratch.Parse(text)
		if err != nil {
			if !errdefs.Is(err, errdefs.Invalid) {
				t.Fatalf("Parse(%q): %v", text, err)
			}
			return
		}
		again, err := scratch.Parse(got.At().Rel())
		if err != nil || again != got || got.At().IsRoot() || got.At().IsOwn() {
			t.Fatalf("Parse(%q) = %q, again %q, %v", text, got, again, err)
		}
	})
}

var rules = []policy.Rule{
	{Pattern: "**", Permission: policy.Write, Source: "policy.yaml:2"},
	{Pattern: "*.pem", Own: true},
	{Pattern: "/src/**", Permission: policy.Read},
}

func TestCheckPolicy(t *testing.T) {
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := scratch.CheckPolicy(p, []scratch.Path{"/node_modules"}); err != nil {
		t.Error(err)
	}
	err = scratch.CheckPolicy(p, []scratch.Path{"/node_modules", "/src/x"})
	if !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), `"/src/**"`) || !strings.Contains(err.Error(), "src/x") {
		t.Errorf("below a rule that lets it be read: %v", err)
	}
}

// A flag is named only if it helps: no flag of the command line opens what a strict rule hides.
func TestCheckPolicyNamesAFlagThatHelps(t *testing.T) {
	hide, _, err := policy.ParseFlag(policy.OriginHide, policy.None, "strict:*.key", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		rules []policy.Rule
		helps bool
	}{
		{"a rule that lets it be read", []policy.Rule{{Pattern: "**", Permission: policy.Read}}, true},
		{"no rule", nil, true},
		{"--hide=strict", []policy.Rule{{Pattern: "**", Permission: policy.Write}, hide}, false},
		{"a strict rule", []policy.Rule{{Pattern: "**", Permission: policy.Write}, {Pattern: "*.key", Priority: 1}}, false},
	} {
		p, err := policy.Compile(tt.rules, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = scratch.CheckPolicy(p, []scratch.Path{"/out"})
		if !errdefs.Is(err, errdefs.Precondition) {
			t.Errorf("%s: %v, want Precondition", tt.name, err)
			continue
		}
		if helps := strings.Contains(err.Error(), `--write "out/"`); helps != tt.helps {
			t.Errorf("%s: it names --write: %t, want %t: %v", tt.name, helps, tt.helps, err)
		}
	}
}
