package policy_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/vpath"
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
	out, err := policy.Preset(name)
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

func TestWhichPathsAPatternMeans(t *testing.T) {
	runDecide(t, []decideCase{
		{
			"type file is the equal path", []string{"/a/b=read file"},
			map[vpath.Path]string{"/a/b": "read", "/a/b/c": "none", "/a/bc": "none", "/x/a/b": "none", "/a": "traversable"},
		},
		{
			"type directory is the path and all below", []string{"/a/b=read directory"},
			map[vpath.Path]string{"/a/b": "read", "/a/b/c/d": "read", "/a/bc": "none", "/a": "traversable"},
		},
		{
			"a metacharacter makes a glob", []string{"/a*=read"},
			map[vpath.Path]string{"/ab": "read", "/a*": "read", "/ab/c": "none"},
		},
		{
			"a slash at the end makes a directory", []string{"/a/=read"},
			map[vpath.Path]string{"/a": "read", "/a/b": "read"},
		},
		{
			"anything else is a file", []string{"/a=read"},
			map[vpath.Path]string{"/a": "read", "/a/b": "none"},
		},
		{
			"a glob's slash at the end means the directory and all below", []string{"**/secrets/=read"},
			map[vpath.Path]string{"/secrets": "read", "/x/secrets/a/b": "read"},
		},
		{
			"type glob without wildcards reads its slash at the end alike", []string{"/secrets/=read glob", ".env=read glob"},
			map[vpath.Path]string{"/secrets/a": "read", "/x/.env": "read", "/x/.env/a": "traversable"},
		},
		{
			"a name matches at any depth", []string{".env=read"},
			map[vpath.Path]string{"/.env": "read", "/a/b/.env": "read", "/.envx": "traversable"},
		},
		{
			"a glob without a slash matches at any depth", []string{"*.pem=read"},
			map[vpath.Path]string{"/x.pem": "read", "/a/b/x.pem": "read"},
		},
		{
			"a directory's name matches at any depth", []string{"secrets/=read"},
			map[vpath.Path]string{"/secrets": "read", "/a/secrets/b": "read", "/a/secretsx": "traversable", "/x": "traversable"},
		},
		{
			"a slash before the last character ties to the root", []string{"/x=read", "a/*.go=read", "a/b/=read"},
			map[vpath.Path]string{"/x": "read", "/y/x": "none", "/a/m.go": "read", "/y/a/m.go": "none", "/a/b/c": "read", "/y/a/b": "none"},
		},
		{
			"a dot and a slash tie to the root", []string{"./x=read", "./*.go=read"},
			map[vpath.Path]string{"/x": "read", "/m.go": "read", "/y/x": "none", "/y/m.go": "none"},
		},
		{
			"a given type file or directory ties to the root", []string{"x=read file", "d=read directory", "e/=read directory"},
			map[vpath.Path]string{"/x": "read", "/y/x": "none", "/d/z": "read", "/y/d": "none", "/e/z": "read", "/y/e": "none"},
		},
		{
			"a given type file or directory has no wildcards", []string{"/a*=read file", `/b\[=read directory`},
			map[vpath.Path]string{"/a*": "read", "/ab": "none", `/b\[/x`: "read", "/b[": "none"},
		},
		{
			"a dot is the workspace itself", []string{".=view", "./=read@-1"},
			map[vpath.Path]string{"/": "view", "/a": "read"},
		},
		{
			"a prefix of a name is no directory", []string{"/src/=read"},
			map[vpath.Path]string{"/src/a": "read", "/src-secret": "none", "/src-secret/a": "none"},
		},
	})
}

func TestWhichRuleWins(t *testing.T) {
	runDecide(t, []decideCase{
		{
			"no rule means none", nil,
			map[vpath.Path]string{"/a": "none", "/": "traversable"},
		},
		{
			"a higher priority beats type and specificity", []string{"/**=none@1", "/a/b=write"},
			map[vpath.Path]string{"/a/b": "none"},
		},
		{
			"a file beats a directory, a directory a glob", []string{"/a/b=write file", "/a/=read", "/a/b*=view"},
			map[vpath.Path]string{"/a/b": "write", "/a/bc": "read"},
		},
		{
			"a longer literal prefix beats a shorter one", []string{"/**=read", "/secrets/**=none", "/secrets/public.key=read"},
			map[vpath.Path]string{"/a": "read", "/secrets/x": "none", "/secrets/public.key": "read", "/secrets": "traversable"},
		},
		{
			"fewer wildcards beat more", []string{"/a/*/*=read", "/a/*/?*=none"},
			map[vpath.Path]string{"/a/b/c": "read"},
		},
		{
			"everything below a prefix is the least specific with that prefix",
			[]string{"/src/**=read", "/src/**/*.pem=none", "/src/**/*_*.go=write", "/**=view", "**/.env*=none"},
			map[vpath.Path]string{"/src/a/b": "read", "/src/a/b.pem": "none", "/src/a_b.go": "write", "/x": "view", "/.env": "none"},
		},
		{
			"of equal rules the stricter wins", []string{"/a/*.x=write", "/a/*=read", "/a/x*=none@-1"},
			map[vpath.Path]string{"/a/b.x": "read"},
		},
		{
			"the same pattern twice means the stricter", []string{"/a=write", "/a=view"},
			map[vpath.Path]string{"/a": "view"},
		},
		{
			"the order of rules is without meaning", []string{"/a=view", "/a=write"},
			map[vpath.Path]string{"/a": "view"},
		},
	})
}

func TestHowFlagsRank(t *testing.T) {
	runDecide(t, []decideCase{
		{
			"--hide is above every rule", []string{"/a/**=write@1000", "--hide a/*.pem"},
			map[vpath.Path]string{"/a/x.pem": "none", "/a/x": "write"},
		},
		{
			"--hide is above a flag that names the file", []string{"--read /a", "--hide /a"},
			map[vpath.Path]string{"/a": "none"},
		},
		{
			"what lies below a hidden directory is hidden", []string{"/**=write", "--read /a/b", "--hide a"},
			map[vpath.Path]string{"/a": "none", "/a/b": "none", "/x/a/c": "none"},
		},
		{
			"a none rule that wins beats a widening flag", []string{"/**=read", "*.pem=none", "--write **/*"},
			map[vpath.Path]string{"/a": "write", "/x.pem": "none"},
		},
		{
			"a none rule that loses to another rule does not beat a flag", []string{"/a/**=none", "/a/b/**=read@10", "--write /a/b/"},
			map[vpath.Path]string{"/a/b/c": "write", "/a/c": "none"},
		},
		{
			"a widening flag beats every rule that is not none", []string{"/a=read@1000", "--write /*"},
			map[vpath.Path]string{"/a": "write"},
		},
		{
			"a flag may also permit less", []string{"/**=write@1000", "--view /a/"},
			map[vpath.Path]string{"/a/b": "view", "/b": "write"},
		},
		{
			"a flag that names exactly the file beats a none rule", []string{"**/.env*=none@100", "/**=read", "--read ./.env.example"},
			map[vpath.Path]string{"/.env.example": "read", "/.env": "none", "/a/.env.example": "none"},
		},
		{
			"a bare name names exactly the file at the root", []string{"**/.env*=none@100", "--read .env"},
			map[vpath.Path]string{"/.env": "read", "/a/.env": "none"},
		},
		{
			"a bare name is a flag at any depth where no none rule wins", []string{"--read .env"},
			map[vpath.Path]string{"/.env": "read", "/a/.env": "read"},
		},
		{
			"a flag with a wildcard does not name a file", []string{"**/.env*=none@100", "--read /.en?", "--read /{.env,x}"},
			map[vpath.Path]string{"/.env": "none", "/x": "read"},
		},
		{
			"a flag that names a directory does not name a file", []string{"/secrets/=none", "--read /secrets/"},
			map[vpath.Path]string{"/secrets": "none", "/secrets/a": "none"},
		},
		{
			"a flag that names the file beats a none rule of an ancestor", []string{"/secrets/=none@100", "--read /secrets/a/b"},
			map[vpath.Path]string{"/secrets/a/b": "read", "/secrets/a": "traversable", "/secrets": "traversable", "/secrets/c": "none"},
		},
		{
			"a flag does not hide what a rule shows below a none rule", []string{"/a=none", "/a/b=read@1", "--write /a/"},
			map[vpath.Path]string{"/a": "traversable", "/a/b": "write", "/a/c": "none"},
		},
		{
			"of two flags the more specific counts", []string{"--write /**", "--view /a/*", "--read /a/b"},
			map[vpath.Path]string{"/x": "write", "/a/x": "view", "/a/b": "read"},
		},
	})
}

func TestNoneIsInherited(t *testing.T) {
	runDecide(t, []decideCase{
		{
			"a path below one that is none is hidden", []string{"/**=read", "/a=none file"},
			map[vpath.Path]string{"/a": "none", "/a/b": "none", "/a/b/c": "none", "/b": "read"},
		},
		{
			"a rule that outranks the ancestor's shows the path", []string{"/a=none file", "/a/b=read@1"},
			map[vpath.Path]string{"/a": "traversable", "/a/b": "read", "/a/c": "none"},
		},
		{
			"an ancestor's none rule that does not win there is not inherited", []string{"/a=none", "/a=view@1", "/a/b*=read"},
			map[vpath.Path]string{"/a": "view", "/a/bc": "read"},
		},
		{
			"any ancestor's none rule counts, not only the parent's", []string{"/a=none@5", "/a/b=read@1", "/a/b/c=read@1", "/a/b/d=read@9"},
			map[vpath.Path]string{"/a/b": "traversable", "/a/b/c": "none", "/a/b/d": "read"},
		},
		{
			"default deny is not inherited", []string{"/a/b/c=read"},
			map[vpath.Path]string{"/a": "traversable", "/a/b": "traversable", "/a/b/c": "read", "/b": "none"},
		},
		{
			"other permissions are not inherited", []string{"/a=write file"},
			map[vpath.Path]string{"/a": "write", "/a/b": "none"},
		},
	})
}

func TestTraversableDirectories(t *testing.T) {
	runDecide(t, []decideCase{
		{
			"a directory is traversable if a rule may grant something below", []string{"/a/*/c=read"},
			map[vpath.Path]string{"/a": "traversable", "/a/b": "traversable", "/a/b/x": "none", "/b": "none"},
		},
		{
			"a rule for any depth makes every directory traversable", []string{"*.md=read"},
			map[vpath.Path]string{"/a": "traversable", "/a/b": "traversable"},
		},
		{
			"a weaker rule does not make a hidden directory traversable", []string{"/**=read", "**/secrets/**=none@100", "*.md=read@99"},
			map[vpath.Path]string{"/secrets": "none", "/secrets/a.md": "none", "/x/secrets/y": "none"},
		},
		{
			"an outranking rule makes hidden directories traversable", []string{"**/secrets/**=none@100", "*.md=read@101"},
			map[vpath.Path]string{"/secrets": "traversable", "/secrets/x": "traversable", "/secrets/a.md": "read", "/secrets/a": "traversable"},
		},
		{
			"a rule that another one always beats grants nothing", []string{"/a/**=none@1", "/a/b=read"},
			map[vpath.Path]string{"/a": "none", "/a/b": "none", "/": "traversable"},
		},
		{
			"a hidden directory is not traversable for a flag that a none rule beats", []string{"**/secrets/**=none", "--read **/*.md"},
			map[vpath.Path]string{"/secrets": "none", "/secrets/a.md": "none", "/x": "traversable"},
		},
		{
			"the root is always traversable", []string{"/**=none@9", "--hide **"},
			map[vpath.Path]string{"/": "traversable", "/a": "none"},
		},
	})
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
	if _, err := policy.Compile(nil, policy.Options{Reserved: []vpath.Path{"/"}}); !fault.Is(err, fault.Invalid) {
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
			"only the directories directly above", []string{"/**=read", "/a/b/c=write"},
			map[vpath.Path]bool{"/a/b": true, "/a": false, "/": false, "/a/b/c": false},
		},
		{
			"a directory all below which is write", []string{"/**=read", "/out/=write"},
			map[vpath.Path]bool{"/": true, "/out": true, "/out/x": true, "/in": false},
		},
		{
			"a write rule that another rule beats for every child", []string{"/**=write", "/ro/**=read", "/ro/**/x=write@-1"},
			map[vpath.Path]bool{"/": true, "/ro": false, "/ro/x": false, "/rw": true},
		},
		{
			"a file may be write in a directory that is not", []string{"/ro/**=read", "/ro/log=write"},
			map[vpath.Path]bool{"/ro": true},
		},
		{
			"a flag for some children", []string{"/**=read", "--write *.log"},
			map[vpath.Path]bool{"/": true, "/a/b": true},
		},
		{
			"a hidden directory", []string{"/**=write", "/a/=none"},
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
		"/.env":             `none rule "**/.env*" (preset agent-safe)`,
		"/.git/config":      `none rule "**/.git/**" (preset agent-safe)`,
		"/a.log":            `none rule "*.log" (--hide)`,
		"/d.log/x":          `none rule "*.log" (--hide), inherited from a directory above`,
		"/x":                `read rule "/x" (policy.yaml:7)`,
		"/.env.d/a":         `none rule "**/.env*" (preset agent-safe), inherited from a directory above`,
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
		if _, err := policy.Compile([]policy.Rule{r}, policy.Options{}); !fault.Is(err, fault.Invalid) {
			t.Errorf("Compile(%+v) error = %v, want Invalid", r, err)
		}
	}
}
