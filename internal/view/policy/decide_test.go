package policy_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// rules reads rules from a shorthand: "PATTERN=PERMISSION[@PRIORITY][ TYPE]",
// or a flag, "--hide PATTERN", as the command line has it.
func rules(t testing.TB, texts ...string) []policy.Rule {
	t.Helper()
	var out []policy.Rule
	for _, text := range texts {
		if flag, pattern, ok := strings.Cut(text, " "); ok && strings.HasPrefix(flag, "--") {
			out = append(out, flagRule(t, flag, pattern))
			continue
		}
		pattern, rest, _ := strings.Cut(text, "=")
		rest, kind, _ := strings.Cut(rest, " ")
		name, priority, _ := strings.Cut(rest, "@")
		r := policy.Rule{Pattern: pattern}
		var err error
		if r.Permission, err = policy.ParsePermission(name); err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(priority); err == nil {
			r.Priority = int32(n)
		}
		if kind != "" {
			if r.Type, err = policy.ParsePatternType(kind); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, r)
	}
	return out
}

func flagRule(t testing.TB, flag, pattern string) policy.Rule {
	t.Helper()
	origin, permission := policy.OriginHide, policy.None
	if flag != "--hide" {
		origin = policy.OriginFlag
		var err error
		if permission, err = policy.ParsePermission(flag[2:]); err != nil {
			t.Fatal(err)
		}
	}
	r, _, err := policy.ParseFlag(origin, permission, pattern, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func presetRules(t testing.TB, name string, more ...string) []policy.Rule {
	t.Helper()
	out, err := preset.Rules(name)
	if err != nil {
		t.Fatal(err)
	}
	return append(out, rules(t, more...)...)
}

// outcome is "none", "view", "read", "write", or "traversable".
func outcome(d policy.Decision) string {
	if d.Permission == policy.None && d.Traversable {
		return "traversable"
	}
	return d.Permission.String()
}

type decideCase struct {
	name  string
	rules []string
	want  map[vpath.Path]string // outcome of each path
}

func runDecide(t *testing.T, tests []decideCase) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := compile(t, rules(t, tt.rules...))
			for path, want := range tt.want {
				if d := p.Decide(path); outcome(d) != want {
					t.Errorf("Decide(%s) = %s (%s), want %s", path, outcome(d), d.Reason, want)
				}
			}
		})
	}
}

// At the place of another mount there is a directory, and nothing in it, whatever the rules say.
func TestPlacesShowAndHideAllBelow(t *testing.T) {
	for what, rules := range map[string][]policy.Rule{
		"no rule":  nil,
		"none":     {{Pattern: "/home/", Permission: policy.None, Priority: 9}, {Pattern: "/home/me/project/a", Permission: policy.Write, Origin: policy.OriginFlag}},
		"write":    {{Pattern: "**", Permission: policy.Write}},
		"--hide":   {{Pattern: "project", Permission: policy.None, Origin: policy.OriginHide}},
		"own none": {{Pattern: "**", Permission: policy.Write}, {Pattern: "/home/", Permission: policy.None, Own: true}},
	} {
		p, err := policy.Compile(rules, policy.Options{Places: []vpath.Path{"/home/me/project"}})
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[vpath.Path]policy.Permission{
			"/home/me/project": policy.View, "/home/me/project/a": policy.None, "/home/me/project/a/b": policy.None,
		} {
			if d := p.Decide(path); d.Permission != want || d.Rule != policy.NoRule || d.Own || d.Traversable {
				t.Errorf("%s: %s: %+v, want %s", what, path, d, want)
			}
		}
		for _, above := range []vpath.Path{"/", "/home", "/home/me"} {
			if d := p.Decide(above); d.ForDir() == policy.None {
				t.Errorf("%s: %s does not lead to the place: %+v", what, above, d)
			}
		}
		if p.MayMkdir("/home/me/project/new") {
			t.Errorf("%s: a directory can be made below the place", what)
		}
		p.Explain("/home/me/project/a")
		p.Explain("/home/me/project")
	}
}

func TestReservedPathsAreAboveAllRules(t *testing.T) {
	p := compile(t, rules(t, "/**=write@1000", "--write /state/x"), "/state", "/mnt/view")
	for path, want := range map[vpath.Path]string{
		"/state": "none", "/state/x": "none", "/state/x/y": "none", "/statex": "write",
		"/mnt": "write", "/mnt/view": "none", "/mnt/view/a": "none",
	} {
		d := p.Decide(path)
		if outcome(d) != want {
			t.Errorf("Decide(%s) = %s, want %s", path, outcome(d), want)
		}
		if want == "none" && (d.Rule != policy.NoRule || d.Reason != "reserved for agentfense itself") {
			t.Errorf("Decide(%s) = rule %d, %q", path, d.Rule, d.Reason)
		}
		if got := p.MayMkdir(path); got != (want == "write") {
			t.Errorf("MayMkdir(%s) = %v", path, got)
		}
	}
	if _, err := policy.Compile(nil, policy.Options{Reserved: []vpath.Path{"/"}}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("reserving the root: error = %v, want Invalid", err)
	}
}

func TestTheProjectsPolicyFileIsNeverWritable(t *testing.T) {
	p := compile(t, rules(t, "/**=write", "--write /.agentfense.yaml"))
	for path, want := range map[vpath.Path]string{
		"/.agentfense.yaml": "read", "/a/.agentfense.yaml": "write", "/.agentfense.yaml.bak": "write",
	} {
		if d := p.Decide(path); outcome(d) != want {
			t.Errorf("Decide(%s) = %s, want %s", path, outcome(d), want)
		}
	}
	if p.MayMkdir("/.agentfense.yaml") {
		t.Error("mkdir is allowed in the policy file's place")
	}
	for _, text := range []string{"/.agentfense.yaml=view@9", "--hide .agentfense.yaml"} {
		p := compile(t, rules(t, "/**=write", text))
		if d := p.Decide("/.agentfense.yaml"); d.Permission > policy.View {
			t.Errorf("with %q it is %s", text, d.Permission)
		}
	}
}

func TestMkdirMayMakeTheWayToAWritablePath(t *testing.T) {
	p := compile(t, rules(t, "/**=read", "/out/logs/*.log=write", "/hid/**=none@1", "/hid/x=write", "tmp/=write"))
	for path, want := range map[vpath.Path]bool{
		"/out": true, "/out/logs": true, "/out/logs/a.log": true, "/out/logs/b.log/c": true,
		"/out/x": true, "/hid": false, "/hid/x": false, "/x/tmp": true, "/x/tmp/y": true,
	} {
		if got := p.MayMkdir(path); got != want {
			t.Errorf("MayMkdir(%s) = %v, want %v", path, got, want)
		}
	}
	p = compile(t, rules(t, "/**=read", "/out/logs/*.log=write"))
	for path, want := range map[vpath.Path]bool{"/out": true, "/out/logs": true, "/out/x": false, "/o": false} {
		if got := p.MayMkdir(path); got != want {
			t.Errorf("without tmp/, MayMkdir(%s) = %v, want %v", path, got, want)
		}
	}
	p = compile(t, rules(t, "/**=write", "/d/**=read", "/d/e/f=write", "--write /g/h/", "/g/**=read"))
	for path, want := range map[vpath.Path]bool{"/d/x": false, "/d": true, "/d/e": true, "/d/e/g": false, "/g": true, "/g/i": false, "/g/h/j": true, "/z": true} {
		if got := p.MayMkdir(path); got != want {
			t.Errorf("with /d/** read, MayMkdir(%s) = %v, want %v", path, got, want)
		}
	}
	for _, c := range []struct {
		rules string
		path  vpath.Path
		want  bool
	}{
		{"--read /d/", "/d/x", false},
		{"--read d/", "/a/d/x", false},
		{"--view /d/", "/d/x/y", false},
		{"--read /d/", "/e/x", true},
		{"--write /**|--read /d/", "/d/x", false},
		{"--read /d/|--write /d/e/f/", "/d/e", true},
		{"--read /d/|--write /d/e/f", "/d/e", true},
	} {
		p := compile(t, rules(t, append([]string{"/**=write"}, strings.Split(c.rules, "|")...)...))
		if got := p.MayMkdir(c.path); got != c.want {
			t.Errorf("with %s, MayMkdir(%s) = %v, want %v", c.rules, c.path, got, c.want)
		}
	}
	if p := compile(t, rules(t, "/out/a=write")); !p.MayMkdir("/out") || p.MayMkdir("/x") {
		t.Error("an unmatched ancestor of a writable path may be made, another unmatched path not")
	}
}

func TestADirectoryShowsWIfAChildCouldBeWritten(t *testing.T) {
	tests := []struct {
		name  string
		rules []string
		want  map[vpath.Path]bool
	}{
		{
			"only the directories directly above",
			[]string{"/**=read", "/a/b/c=write"},
			map[vpath.Path]bool{"/a/b": true, "/a": false, "/": false, "/a/b/c": false},
		},
		{
			"a directory all below which is write",
			[]string{"/**=read", "/out/=write"},
			map[vpath.Path]bool{"/": true, "/out": true, "/out/x": true, "/in": false},
		},
		{
			"a write rule that another rule beats for every child",
			[]string{"/**=write", "/ro/**=read", "/ro/**/x=write@-1"},
			map[vpath.Path]bool{"/": true, "/ro": false, "/ro/x": false, "/rw": true},
		},
		{
			"a file may be write in a directory that is not",
			[]string{"/ro/**=read", "/ro/log=write"},
			map[vpath.Path]bool{"/ro": true},
		},
		{
			"a flag for some children",
			[]string{"/**=read", "--write *.log"},
			map[vpath.Path]bool{"/": true, "/a/b": true},
		},
		{
			"a hidden directory",
			[]string{"/**=write", "/a/=none"},
			map[vpath.Path]bool{"/a": false, "/": true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := compile(t, rules(t, tt.rules...))
			for path, want := range tt.want {
				if got := p.ChildWritable(path); got != want {
					t.Errorf("ChildWritable(%s) = %v, want %v", path, got, want)
				}
			}
		})
	}
}

func TestADecisionCarriesItsReason(t *testing.T) {
	p := compile(t, append(presetRules(t, "agent-safe", "--hide *.log"),
		policy.Rule{Pattern: "/x", Permission: policy.Read, Source: "policy.yaml:7"}))
	for path, want := range map[vpath.Path]string{
		"/a.txt":            `read rule "**/*" (preset agent-safe)`,
		"/.env":             `none rule "**/.env" (preset agent-safe)`,
		"/.env.x":           `none rule "**/.env!(rc|*example|*sample|*template|*dist)" (preset agent-safe)`,
		"/.git/config":      `none rule "**/.git/**" (preset agent-safe)`,
		"/a.log":            `none rule "*.log" (--hide)`,
		"/d.log/x":          `none rule "*.log" (--hide), inherited from a directory above`,
		"/x":                `read rule "/x" (policy.yaml:7)`,
		"/.env.local/a":     `none rule "**/.env.{local,*.local,dev,development,test,staging,prod,production}" (preset agent-safe), inherited from a directory above`,
		"/.agentfense.yaml": `read rule "**/*" (preset agent-safe)`,
	} {
		if got := p.Decide(path).Reason; got != want {
			t.Errorf("reason at %s = %s, want %s", path, got, want)
		}
	}
	if got := compile(t, nil).Decide("/a"); got != (policy.Decision{Rule: policy.NoRule, Reason: "no rule matches: default deny"}) {
		t.Errorf("default deny = %+v", got)
	}
}

func TestContradictingRulesAreRefused(t *testing.T) {
	for _, r := range []policy.Rule{
		{Pattern: "/a", Permission: 4},
		{Pattern: "/a", Type: 4},
		{Pattern: "/a", Origin: 3},
		{Pattern: "/a", Origin: policy.OriginHide, Permission: policy.Read},
		{Pattern: "/a", Origin: policy.OriginFlag, Permission: policy.None},
		{Pattern: "/a/", Type: policy.File},
	} {
		if _, err := policy.Compile([]policy.Rule{r}, policy.Options{}); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("Compile(%+v) error = %v, want Invalid", r, err)
		}
	}
}

func TestDecidingAllocatesNothing(t *testing.T) {
	p := compile(t, append(presetRules(t, "agent-safe", "--hide *.log", "--write /src/**/*.go"), rulesOf("/src/dir%d/**", "**/*.ext%d")...))
	s := p.At("/src/a/b")
	paths := append([]vpath.Path{"/", "/.git/config", "/src/a/b/c/d.log"}, benchPaths...)
	allocated := testing.AllocsPerRun(100, func() {
		for _, path := range paths {
			p.Decide(path)
			p.ChildWritable(path)
			p.MayMkdir(path)
		}
		s.DecideChild("main.go")
		s.DecideChild(".env")
		s.Decision()
		s.ChildWritable()
	})
	if allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}
