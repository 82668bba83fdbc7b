package prove_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/policy/prove"
)

func compile(t testing.TB, rules ...policy.Rule) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(rules, policy.Options{Reserved: []vpath.Path{"/state"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rules reads "PATTERN=PERMISSION[@PRIORITY]".
func rules(t testing.TB, texts ...string) []policy.Rule {
	t.Helper()
	var out []policy.Rule
	for _, text := range texts {
		i := strings.LastIndex(text, "=")
		name, priority, _ := strings.Cut(text[i+1:], "@")
		r := policy.Rule{Pattern: text[:i]}
		if err := r.Permission.UnmarshalText([]byte(name)); err != nil {
			t.Fatal(err)
		}
		fmt.Sscan(priority, &r.Priority)
		r.Own = r.Permission == policy.None
		out = append(out, r)
	}
	return out
}

func TestHolds(t *testing.T) {
	for _, tt := range []struct {
		name      string
		rules     []string
		assertion string
		want      string // the counterexample; "": it holds
	}{
		{"a hidden suffix", []string{"**=write", "*.pem=none@1"}, "none **/*.pem", ""},
		{"a rule with a higher priority", []string{"**=write", "*.pem=none@1", "/test/=read@2"}, "none *.pem", "/test/.pem read"},
		{"a hole in a class", []string{"**=write", "*.[p-q]em=none@1", "*.[^p]em=none@1"}, "none *.?em", ""},
		{"a longer name", []string{"**=write", "*.pem=none@1"}, "none **/*.pem*", "/.pema write"},
		{"another case", []string{"**=write", "*.pem=none@1"}, "none **/*.[Pp]em", "/.Pem write"},
		{"a directory that shows because of what is in it", []string{"*.d=none@1", "/x.d/a=read@2"}, "none *.d", "/x.d/ view"},
		{"at most read", []string{"**=read", "/out/=write"}, "at-most read /src/**", ""},
		{"at most read, and a wildcard reaches it", []string{"**=read", "/*/gen/**=write"}, "at-most read /src/**", "/src/gen write"},
		{"exactly write", []string{"/src/**=write", "**/.git/=none@9"}, "write /src/**", "/src/.git none"},
		{"at least read", []string{"**=read", "/src/**=write"}, "at-least read /src/**", ""},
		{"exactly write, without it", []string{"/src/**=write"}, "write /src/**", ""},
		{"the project's policy file", []string{"**=write"}, "read /.agentfense.yaml", ""},
		{"reserved paths", []string{"**=write@9"}, "none /state/**", ""},
		{"a deep path", []string{"**=none", "/a/*/c/**/e.txt=read@1"}, "none **/*.txt", "/a/.txt/ view"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := prove.Parse(tt.assertion)
			if err != nil {
				t.Fatal(err)
			}
			c, holds, err := prove.Holds(compile(t, rules(t, tt.rules...)...), a)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if !holds {
				got = c.Path.String()
				if c.Dir {
					got += "/"
				}
				got += " " + c.Got().String()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if _, _, err := prove.Holds(compile(t), prove.Assertion{Pattern: "["}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a malformed pattern: error = %v, want Invalid", err)
	}
	for _, text := range []string{"", "none", "nothing **", "at-most **", "at-least read "} {
		if a, err := prove.Parse(text); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("Parse(%q) = %+v, %v; want Invalid", text, a, err)
		}
	}
}

func TestDiff(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b []string
		want []string
	}{
		{"the same rules in another order", []string{"**=read", "*.pem=none@1"}, []string{"*.pem=none@1", "**=read"}, nil},
		{"the same meaning written differently", []string{"*.{a,b}=none@1", "**=read"}, []string{"**=read", "**/*.[ab]=none@1"}, nil},
		{"a rule that another always beats", []string{"**=read@9", "/a=none"}, []string{"**=read@9"}, nil},
		{"a wider rule", []string{"**=read"}, []string{"**=read", "/out/=write"}, []string{"/out read→write"}},
		{"a narrower one", []string{"**=read"}, []string{"**=read", ".env=none@1"}, []string{"/.env read→none"}},
		{"a path that shows for what is in it", []string{"/a/=none"}, []string{"/a/=none", "/a/b/c=read@1"}, []string{"/a/ none→view", "/a/b/c none→read"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := diff(t, compile(t, rules(t, tt.a...)...), compile(t, rules(t, tt.b...)...))
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func diff(t *testing.T, a, b *policy.Policy) []string {
	t.Helper()
	found, err := prove.Diff(a, b)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range found {
		path := d.Path.String()
		if d.Dir {
			path += "/"
		}
		out = append(out, fmt.Sprintf("%s %s→%s", path, d.From(), d.To()))
	}
	return out
}

func TestDiffOfWhatIsShownAndKept(t *testing.T) {
	masked := func(format policy.Format) []policy.Rule {
		return append(rules(t, "**=write"), policy.Rule{Pattern: ".env", Permission: policy.Read, Transform: policy.Transform{Redact: format}})
	}
	state := func(keep bool) []policy.Rule {
		return append(rules(t, "**=read"), policy.Rule{Pattern: "/kept/", Permission: policy.Write, Keep: keep})
	}
	for _, tt := range []struct {
		name        string
		a, b        []policy.Rule
		path        vpath.Path
		shown, kept bool
		wider       bool
	}{
		{"a mask is added", masked(0), masked(policy.Env), "/.env", true, false, false},
		{"a mask is taken away", masked(policy.Env), masked(0), "/.env", true, false, true},
		{"another mask", masked(policy.Env), masked(policy.JSON), "/.env", true, false, true},
		{"changes are kept", state(false), state(true), "/kept", false, true, true},
		{"changes wait", state(true), state(false), "/kept", false, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, err := prove.Diff(compile(t, tt.a...), compile(t, tt.b...))
			if err != nil || len(found) != 1 {
				t.Fatalf("got %+v, %v", found, err)
			}
			d := found[0]
			if d.Path != tt.path || d.Shown != tt.shown || d.Kept != tt.kept || d.Widens() != tt.wider {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestPresetsDoNotDifferFromThemselves(t *testing.T) {
	for _, name := range preset.Names() {
		r, err := preset.Rules(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := diff(t, compile(t, r...), compile(t, append(r, rules(t, "/x=none@-9")...)...)); len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestPresetsHideSecrets proves what the documentation says of presets, for every path.
func TestPresetsHideSecrets(t *testing.T) {
	r, err := preset.Rules("agent-safe")
	if err != nil {
		t.Fatal(err)
	}
	p := compile(t, r...)
	for pattern, want := range map[string]string{
		"**/*.key": "", "**/.env": "", "**/.git/**": "", "**/id_rsa": "",
		"**/*.pem": "chain.pem", // bundles of certificates are no secrets
	} {
		c, holds, err := prove.Holds(p, prove.Assertion{Pattern: pattern})
		if err != nil || holds != (want == "") || !strings.Contains(c.Path.String(), want) {
			t.Errorf("%s: %s, %v, %v", pattern, c.Path, holds, err)
		}
	}
}

// words of random patterns and paths: few, so that they meet.
var (
	elements = []string{"a", "b", "a.x", "*", "**", "*.x", "a*", "?", "[^a]", "{a,b.x}", "*a*", ".git", "state"}
	names    = []string{"a", "b", "c", "a.x", "b.x", "ab", "ba.x", ".git", "state", ".agentfense.yaml", "é", "\xff"}
)

func randomPattern(r *rand.Rand) string {
	parts := make([]string, 1+r.IntN(4))
	for i := range parts {
		parts[i] = elements[r.IntN(len(elements))]
	}
	return []string{"", "/"}[r.IntN(2)] + strings.Join(parts, "/") + []string{"", "", "/"}[r.IntN(3)]
}

func randomRules(r *rand.Rand) []policy.Rule {
	out := make([]policy.Rule, 1+r.IntN(6))
	for i := range out {
		out[i] = policy.Rule{Pattern: randomPattern(r), Permission: policy.Permission(r.IntN(4)), Priority: int32(r.IntN(2)), Own: r.IntN(2) == 0}
		switch r.IntN(6) {
		case 0:
			out[i].Origin, out[i].Permission = policy.OriginHide, policy.None
		case 1:
			out[i].Origin, out[i].Permission = policy.OriginFlag, policy.Permission(1+r.IntN(3))
		}
		out[i].Own = out[i].Own && out[i].Permission == policy.None
	}
	return out
}

func randomPath(r *rand.Rand) vpath.Path {
	p := vpath.Root
	for range r.IntN(6) {
		p = p.Child(names[r.IntN(len(names))])
	}
	return p
}

// policies is how many random pairs of policies are compared, and paths at how many random paths
// each.
var (
	policies = flag.Int("prove.policies", 600, "how many random pairs of policies are compared")
	paths    = flag.Int("prove.paths", 60, "at how many random paths each pair is compared")
)

// TestAnswersAreExact asks about random policies, and looks at random paths: where these differ,
// the answer must say so, and what it names must differ.
func TestAnswersAreExact(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range *policies {
		ra, rb := randomRules(r), randomRules(r)
		a, err := policy.Compile(ra, policy.Options{Reserved: []vpath.Path{"/state"}})
		if err != nil {
			continue
		}
		b, err := policy.Compile(rb, policy.Options{})
		if err != nil {
			continue
		}
		checkDiff(t, r, a, b)
		checkHolds(t, r, a)
		if t.Failed() {
			t.Fatalf("seed %d: %q and %q", seed, ra, rb)
		}
	}
}

func kindOf(a, b policy.Decision) string {
	switch {
	case a.Permission != b.Permission:
		return fmt.Sprint(a.Permission, "→", b.Permission)
	case a.ForDir() != b.ForDir():
		return fmt.Sprint("directory ", a.ForDir(), "→", b.ForDir())
	}
	return ""
}

func checkDiff(t *testing.T, r *rand.Rand, a, b *policy.Policy) {
	t.Helper()
	found, err := prove.Diff(a, b)
	if err != nil {
		t.Error(err)
	}
	known := map[string]bool{}
	for _, d := range found {
		kind := kindOf(a.Decide(d.Path), b.Decide(d.Path))
		if kind != kindOf(d.A, d.B) || kind == "" {
			t.Errorf("%s is reported as %q and is %q", d.Path, kindOf(d.A, d.B), kind)
		}
		known[kind] = true
	}
	for range *paths {
		path := randomPath(r)
		if kind := kindOf(a.Decide(path), b.Decide(path)); kind != "" && !known[kind] {
			t.Errorf("%s differs (%s), and no difference says so: %v", path, kind, known)
		}
	}
}

func checkHolds(t *testing.T, r *rand.Rand, p *policy.Policy) {
	t.Helper()
	a := prove.Assertion{randomPattern(r), policy.Permission(r.IntN(4)), policy.Permission(r.IntN(4))}
	matches, err := policy.Compile([]policy.Rule{{Pattern: a.Pattern, Permission: policy.Write}}, policy.Options{})
	if err != nil {
		return
	}
	wrong := func(path vpath.Path) bool {
		d := p.Decide(path)
		bad := func(got policy.Permission) bool { return got < a.Least || got > a.Most }
		return matches.Decide(path).Rule != policy.NoRule && (bad(d.Permission) || bad(d.ForDir()))
	}
	c, holds, err := prove.Holds(p, a)
	if err != nil {
		t.Error(err)
	}
	if !holds && !wrong(c.Path) {
		t.Errorf("%s is no counterexample to %+v: %+v", c.Path, a, c.Decision)
	}
	for range *paths {
		if path := randomPath(r); holds && wrong(path) {
			t.Errorf("%s is a counterexample to %+v", path, a)
		}
	}
}

// thousandRules are rules of all kinds, of which many overlap.
func thousandRules() []policy.Rule {
	var out []policy.Rule
	for i := range 250 {
		out = append(out,
			policy.Rule{Pattern: fmt.Sprintf("/src/pkg%d/**", i), Permission: policy.Write},
			policy.Rule{Pattern: fmt.Sprintf("*.ext%d", i), Permission: policy.None, Own: true, Priority: int32(i % 3)},
			policy.Rule{Pattern: fmt.Sprintf("**/build%d/*.log", i), Permission: policy.Read, Priority: 1},
			policy.Rule{Pattern: fmt.Sprintf("/data/set%d/**/part-*.csv", i), Permission: policy.View},
		)
	}
	return out
}

func BenchmarkAThousandRules(b *testing.B) {
	p := compile(b, thousandRules()...)
	for b.Loop() {
		if _, holds, err := prove.Holds(p, prove.Assertion{Pattern: "**/*.ext77"}); !holds || err != nil {
			b.Fatal(holds, err)
		}
		other := compile(b, append(thousandRules(), policy.Rule{Pattern: "/one/more", Permission: policy.Read})...)
		if found, err := prove.Diff(p, other); len(found) == 0 || err != nil {
			b.Fatal(found, err)
		}
	}
}
