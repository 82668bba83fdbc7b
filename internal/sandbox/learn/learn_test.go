package learn_test

import (
	"bytes"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/learn"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/policy/prove"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// used are uses of files: "KIND PATH", a path with a slash at its end is a directory.
func used(lines ...string) []uses.Use {
	kinds := map[string]uses.Kind{
		"find": uses.Found, "list": uses.Listed, "read": uses.Read, "exec": uses.Executed, "write": uses.Written,
		"make": uses.Created, "temp": uses.Created | uses.Removed, "remove": uses.Removed, "move": uses.Created | uses.Tree,
	}
	var all []uses.Use
	for _, line := range lines {
		kind, path, _ := strings.Cut(line, " ")
		p, err := vpath.Parse(path)
		if err != nil {
			panic(err)
		}
		all = append(all, uses.Use{Path: p, Kind: kinds[kind], Dir: strings.HasSuffix(path, "/")})
	}
	return all
}

// source lists the directories of a source with these files.
func source(files ...string) func(vpath.Path) []learn.Entry {
	return func(dir vpath.Path) []learn.Entry {
		var list []learn.Entry
		for _, f := range files {
			p := vpath.Path(f)
			if p == dir || !p.Within(dir) {
				continue
			}
			name, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(f, string(dir)), "/"), "/")
			if e := (learn.Entry{Name: name, Dir: rest != ""}); !slices.Contains(list, e) {
				list = append(list, e)
			}
		}
		return list
	}
}

func mustRules(t interface{ Fatal(...any) }, name string) []policy.Rule {
	rules, err := preset.Rules(name)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestWhatIsLearned(t *testing.T) {
	several := func(format string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return all
	}
	tests := []struct {
		name    string
		base    string // default: development
		uses    []string
		source  []string
		secrets []learn.Secret
		want    []string
	}{
		{
			name: "a path is a rule", uses: []string{"read /a.go", "write /b.go", "find /c.go", "list /d/"},
			want: []string{"read /a.go", "write /b.go", "view /c.go", "view /d"},
		},
		{
			name: "a directory above what is used needs no rule", uses: []string{"list /d/", "find /d/e/", "read /d/e/f"},
			want: []string{"read /d/e/f"},
		},
		{name: "two siblings stay two", uses: []string{"read /src/a.js", "read /src/b.js"}, want: []string{"read /src/a.js", "read /src/b.js"}},
		{name: "three agree", uses: []string{"read /src/a.js", "read /src/b.js", "read /src/c.js"}, want: []string{"read /src/*.js"}},
		{
			name: "a sibling that was not used disagrees", uses: []string{"read /src/a.js", "read /src/b.js", "read /src/c.js"}, source: []string{"/src/a.js", "/src/d.js"},
			want: []string{"read /src/a.js", "read /src/b.js", "read /src/c.js"},
		},
		{
			name: "another permission stays a rule", uses: append(several("read /src/a%d.js", 4), "write /src/a9.js"),
			want: []string{"read /src/*.js", "write /src/a9.js"},
		},
		{
			name: "a hidden sibling neither agrees nor is shown", uses: several("read /c/a%d.json", 3), source: []string{"/c/a0.json", "/c/secret.json"},
			want: []string{"read /c/*.json"},
		},
		{
			name: "a known secret among many is hidden", uses: several("read /c/d/a%d.yaml", 30), source: append(several("/c/d/a%d.yaml", 30), "/c/d/prod.yaml"),
			secrets: []learn.Secret{{Path: "/c/d/prod.yaml", Reason: "a token"}},
			want:    []string{"read /c/d/*.yaml", "none /c/d/prod.yaml 100"},
		},
		{
			name: "a secret that was used is named", base: "full-access", uses: append(several("read /c/a%d.pem", 3), "read /.env"),
			want: []string{"read /.env 100", "read /c/a0.pem 100", "read /c/a1.pem 100", "read /c/a2.pem 100"},
		},
		{
			name: "what the base does not permit is not learned", base: "agent-safe", uses: []string{"read /.env", "write /a.go", "read /.git/config"},
			want: []string{"read /a.go"},
		},
		{
			name: "a directory that the command made", uses: []string{"make /out/", "make /out/a", "make /out/b/", "make /out/b/c.txt", "make /out/d"},
			want: []string{"write /out/**"},
		},
		{
			name: "temporary names", uses: []string{"temp /package.json.48213", "make /package.json", "temp /tmpk3j2h1x8", "temp /pytest-cache-files-duz0i0w9/", "temp /pytest-cache-files-duz0i0w9/x"},
			want: []string{"write /package.json", "write /package.json.*", "write /pytest-cache-files-*/**", "write /tmp*"},
		},
		{
			name: "a temporary name that matches what is there", uses: []string{"temp /data.48213"}, source: []string{"/data.1"},
			want: []string{"write /data.48213"},
		},
		{
			name: "directories of one name", uses: []string{
				"make /a/__pycache__/", "make /a/__pycache__/x.pyc", "make /a/__pycache__/y.pyc", "make /a/__pycache__/z.pyc",
				"make /a/b/__pycache__/", "make /a/b/__pycache__/x.pyc", "make /a/b/__pycache__/y.pyc", "make /a/b/__pycache__/z.pyc",
				"make /a/c/__pycache__/", "make /a/c/__pycache__/x.pyc", "make /a/c/__pycache__/y.pyc", "make /a/c/__pycache__/z.pyc",
			},
			source: []string{"/a/x.go"},
			want:   []string{"write /a/**/__pycache__/** 1"},
		},
		{name: "a moved directory", uses: []string{"move /d/"}, want: []string{"write /d/**"}},
		{
			name: "names that mean something in patterns", uses: []string{"read /a*b", "read /d[1]/x.go", "read /d[1]/y.go", "read /d[1]/z.go", "read /!x", "read /n\nl"},
			want: []string{"read /!x", `read /a\*b`, `read /d\[1\]/*.go`, "read /n\nl"},
		},
		{name: "a name that is not UTF-8", uses: []string{"read /a\xff"}, want: []string{"read /a?"}},
		{
			name: "many rules in one directory become one", uses: append(several("read /big/d%d/x", 40), "read /a", "write /big/d1/y"), source: []string{"/big/other"},
			want: []string{"read /a", "read /big/**", "write /big/d1/y"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := tt.base
			if base == "" {
				base = "development"
			}
			l, err := learn.Learn(learn.Input{Uses: used(tt.uses...), Base: mustRules(t, base), List: source(tt.source...), Secrets: tt.secrets, Command: "x"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, texts(l)); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			if len(l.Notes) > 0 {
				t.Errorf("notes: %q", l.Notes)
			}
		})
	}
}

func texts(l *learn.Learned) (all []string) {
	for _, r := range l.Rules {
		text := r.Permission.String() + " " + r.Pattern
		if r.Type != policy.Auto {
			text += " " + r.Type.String()
		}
		if r.Priority != 0 {
			text += fmt.Sprintf(" %d", r.Priority)
		}
		all = append(all, text)
	}
	return all
}

var names = []string{
	"a", "b", "c", "d", "a.js", "b.js", "c.js", "d.js", "e.go", ".env", "x.pem", "secrets", ".git", "objects", "__pycache__", "tmpk3j2h1x8",
	"x.48213", "*", "[a]", "{a,b}", "n\nl", "\xff", `b\`, "node_modules", "**", "-", "é",
}

func drawPath(t *rapid.T, label string) vpath.Path {
	p := vpath.Root
	for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 4).Draw(t, label) {
		p = p.Child(name)
	}
	return p
}

func drawBase(t *rapid.T) []policy.Rule {
	rules := mustRules(t, rapid.SampledFrom([]string{"development", "full-access", "agent-safe", "read-only", "view-only"}).Draw(t, "preset"))
	patterns := []string{"/a/", "/b/**", "**/c/**", "*.js", "**/a/*.js", "/d/*", "/a/b", "secrets/", "/**/d"}
	for range rapid.IntRange(0, 4).Draw(t, "rules") {
		r := policy.Rule{
			Pattern:    rapid.SampledFrom(patterns).Draw(t, "pattern"),
			Permission: policy.Permission(rapid.IntRange(0, 3).Draw(t, "permission")),
			Priority:   rapid.SampledFrom([]int32{0, 1, 60, 200}).Draw(t, "priority"),
		}
		switch rapid.IntRange(0, 5).Draw(t, "origin") {
		case 0:
			if r.Permission == policy.None {
				r.Origin = policy.OriginHide
			} else {
				r.Origin = policy.OriginFlag
			}
		case 1:
			if r.Permission == policy.Read {
				r.Transform.Redact = policy.Env
			}
		}
		rules = append(rules, r)
	}
	return rules
}

// TestEveryUseIsPermittedAndNothingBeyondTheBase is the promise of the package.
func TestEveryUseIsPermittedAndNothingBeyondTheBase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := drawBase(t)
		basePolicy, err := policy.Compile(base, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var all []uses.Use
		dirs := map[vpath.Path]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "uses") {
			p := drawPath(t, "path")
			for a := range p.Ancestors() {
				dirs[a] = true
			}
			all = append(all, uses.Use{Path: p, Kind: uses.Kind(rapid.IntRange(1, int(uses.Tree)-1).Draw(t, "kind"))})
		}
		for i := range all {
			all[i].Dir = dirs[all[i].Path]
			if all[i].Dir && rapid.IntRange(0, 9).Draw(t, "tree") == 0 {
				all[i].Kind |= uses.Tree
			}
		}
		var there []string
		for range rapid.IntRange(0, 20).Draw(t, "source") {
			there = append(there, string(drawPath(t, "there")))
		}
		in := learn.Input{Uses: all, Base: base, List: source(there...), Command: "x"}
		if rapid.Bool().Draw(t, "knows a secret") {
			in.Secrets = []learn.Secret{{Path: drawPath(t, "secret"), Reason: "x"}}
		}
		l, err := learn.Learn(in)
		if err != nil {
			t.Fatal(err)
		}
		p, err := policy.Compile(l.All(), policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		checkUses(t, l, basePolicy, p, all)
		checkSecrets(t, p, all, in.Secrets)
		if rapid.IntRange(1, *exactRounds).Draw(t, "exactly") == *exactRounds/2+1 {
			checkExactly(t, l, basePolicy, p)
		}
		for range 50 {
			if path := drawPath(t, "tried"); p.Decide(path).Permission > basePolicy.Decide(path).Permission {
				t.Errorf("%s: the base gives %s and the learned policy %s\nrules %q", path, basePolicy.Decide(path).Permission, p.Decide(path).Permission, texts(l))
			}
		}
		var file bytes.Buffer
		if err := l.Write(&file); err != nil {
			t.Fatal(err)
		}
		doc, err := policyfile.Load(bytes.NewReader(file.Bytes()), "f")
		if err != nil {
			t.Fatalf("%v\n%s", err, file.String())
		}
		if len(doc.Rules) != len(l.Rules) {
			t.Errorf("the file has %d rules, want %d", len(doc.Rules), len(l.Rules))
		}
	})
}

// exactRounds is in how many rounds one compares the policies for all paths, which takes seconds.
var exactRounds = flag.Int("learn.exact", 300, "compare the policies for all paths in one of `N` rounds")

func checkExactly(t *rapid.T, l *learn.Learned, base, p *policy.Policy) {
	differences, err := prove.Diff(base, p)
	if errdefs.Is(err, errdefs.Exhausted) {
		return // the samples of the other rounds must do
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences {
		if d.Widens() && !d.Dir {
			t.Errorf("%s: the base gives %s and the learned policy %s by %v\nrules %q", d.Path, d.From(), d.To(), p.Rule(d.B.Rule), texts(l))
		}
	}
}

func checkUses(t *rapid.T, l *learn.Learned, base, p *policy.Policy, all []uses.Use) {
	noted := strings.Join(l.Notes, "\n")
	kinds := map[vpath.Path]uses.Kind{}
	for _, u := range all {
		kinds[u.Path] |= u.Kind
	}
	for _, u := range all {
		u.Kind = kinds[u.Path]
		need := policy.View
		switch {
		case u.Kind&uses.Changes != 0:
			need = policy.Write
		case u.Kind&(uses.Read|uses.Executed) != 0:
			need = policy.Read
		}
		need = min(need, base.Decide(u.Path).Permission)
		d := p.Decide(u.Path)
		got := d.Permission
		if u.Dir && need == policy.View {
			got = d.ForDir()
		}
		if u.Dir && u.Kind&uses.Changes == uses.Created && p.MayMkdir(u.Path) {
			continue
		}
		if got < need && !strings.Contains(noted, u.Path.String()) {
			t.Errorf("%s, %x: got %s, want %s\nrules %q", u.Path, u.Kind, got, need, texts(l))
		}
	}
}

// checkSecrets checks that no secret shows that was not used.
func checkSecrets(t *rapid.T, p *policy.Policy, all []uses.Use, known []learn.Secret) {
	tried := []vpath.Path{}
	for _, u := range all {
		for a := range u.Path.Ancestors() {
			tried = append(tried, a.Child(".env"), a.Child("y.pem"), a.Child("secrets").Child("x"))
		}
	}
	for _, s := range known {
		tried = append(tried, s.Path)
	}
	for _, path := range tried {
		wasUsed := slices.ContainsFunc(all, func(u uses.Use) bool { return u.Path == path })
		if d := p.Decide(path); d.Permission > policy.None && !wasUsed {
			t.Errorf("%s is %s by %v", path, d.Permission, p.Rule(d.Rule))
		}
	}
}

// TestManyPaths: an agent that touches 100,000 paths gives a policy, not a flood.
func TestManyPaths(t *testing.T) {
	var all []uses.Use
	for i := range 100_000 {
		k := uses.Found
		switch i % 3 {
		case 1:
			k = uses.Read
		case 2:
			k = uses.Created | uses.Removed
		}
		p := fmt.Sprintf("/d%d/e%d/f%d.t%d", i%7, i%311, i, i%13)
		all = append(all, uses.Use{Path: vpath.Path(p), Kind: k})
	}
	l, err := learn.Learn(learn.Input{Uses: all, Base: mustRules(t, "development"), Command: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Rules) > learn.MaxRules {
		t.Errorf("%d rules: %q …", len(l.Rules), texts(l)[:learn.MaxRules])
	}
	var flat, strange []uses.Use
	for i := range 100_000 {
		flat = append(flat, uses.Use{Path: vpath.Path(fmt.Sprintf("/n%d", i)), Kind: uses.Read})
		strange = append(strange, uses.Use{Path: vpath.Path(fmt.Sprintf("/x.a%d", i)), Kind: uses.Read})
	}
	if l, err = learn.Learn(learn.Input{Uses: flat, Base: mustRules(t, "development"), Command: "x"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"read /*"}, texts(l)); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if _, err = learn.Learn(learn.Input{Uses: strange, Base: mustRules(t, "development"), Command: "x"}); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("got %v, want Exhausted", err)
	}
}

// TestAFileWithoutThePresetGetsExactRules: nothing there hides secrets from a pattern.
func TestAFileWithoutThePresetGetsExactRules(t *testing.T) {
	text := []byte("version: 1\nrules:\n- {pattern: /src/a.js, permission: read}\n")
	into, err := policyfile.Load(bytes.NewReader(text), "f")
	if err != nil {
		t.Fatal(err)
	}
	l, err := learn.Learn(learn.Input{
		Uses: used("read /src/a.js", "read /src/b.js", "read /src/c.js", "read /src/d.js"), Base: mustRules(t, "development"), Into: into, Command: "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.MergeInto(text, into)
	want := `version: 1
rules:
# read
- {pattern: "/src/b.js", permission: read}
# read
- {pattern: "/src/c.js", permission: read}
# read
- {pattern: "/src/d.js", permission: read}
- {pattern: /src/a.js, permission: read}
` + "# Added by `agentfense run --learn`, of: x\n"
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("%v, file (-want +got):\n%s", err, diff)
	}
}
