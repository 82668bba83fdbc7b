package policy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func redact(pattern string, f policy.Format) policy.Rule {
	return policy.Rule{Pattern: pattern, Permission: policy.Read, Transform: policy.Transform{Redact: f}}
}

func substitute(pattern, target string) policy.Rule {
	return policy.Rule{Pattern: pattern, Permission: policy.Read, Transform: policy.Transform{Substitute: target}}
}

func TestTheWinningRuleTransforms(t *testing.T) {
	flag := func(text string) policy.Rule { return rules(t, text)[0] }
	for _, tt := range []struct {
		name  string
		rules []policy.Rule
		path  vpath.Path
		want  string
	}{
		{"the only rule", []policy.Rule{redact(".env", policy.Env)}, "/a/.env", "redact: env"},
		{"another path", []policy.Rule{redact(".env", policy.Env)}, "/a", ""},
		{"of equal rules the one that redacts", append(rules(t, ".env=read"), redact(".env", policy.Env)), "/.env", "redact: env"},
		{"of equal rules the stricter permission", append(rules(t, ".env=view"), redact(".env", policy.Env)), "/.env", ""},
		{"redact is above substitute", []policy.Rule{redact(".env", policy.Env), substitute(".env", "x")}, "/.env", "redact: env"},
		{"substitute is above read", append(rules(t, ".env=read"), substitute(".env", "x")), "/.env", `substitute: "x"`},
		{"redact is above write", append(rules(t, ".env=write"), redact(".env", policy.Env)), "/.env", "redact: env"},
		{"a rule of higher rank shows all", append(rules(t, "/.env=read"), redact(".env", policy.Env)), "/.env", ""},
		{"a flag shows all", []policy.Rule{redact(".env", policy.Env), flag("--read .env")}, "/.env", ""},
		{"a flag hides", []policy.Rule{redact(".env", policy.Env), flag("--hide .env")}, "/.env", ""},
		{"what a directory has", []policy.Rule{redact("conf/", policy.YAML)}, "/conf/a/b", "redact: yaml"},
		{"an own entry", append(rules(t, "/**=write"), redact("**", policy.Env)), vpath.Path("/").Child(vpath.OwnName("x")), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 {
				p := compile(t, tt.rules)
				d, dir := p.Decide(tt.path), p.At(tt.path.Dir())
				if got := d.Transform.String(); got != tt.want || dir.DecideChild(tt.path.Base()).Transform != d.Transform {
					t.Errorf("%s is transformed by %q, want %q", tt.path, got, tt.want)
				}
				slices.Reverse(tt.rules)
			}
		})
	}
}

func TestTwoSubstitutesDoNotDependOnTheOrder(t *testing.T) {
	a, b := substitute("*.env", "a"), substitute("*.env", "b")
	one, other := compile(t, []policy.Rule{a, b}).Decide("/x.env"), compile(t, []policy.Rule{b, a}).Decide("/x.env")
	if one.Transform != other.Transform || one.Transform.IsZero() {
		t.Errorf("%v in one order, %v in the other", one.Transform, other.Transform)
	}
}

func TestTheTargetOfASubstitute(t *testing.T) {
	for _, tt := range []struct {
		text string
		at   vpath.Path
		want vpath.Path
	}{
		{"x.env", "/a/b/.env", "/a/b/x.env"},
		{"x.env", "/.env", "/x.env"},
		{"/x.env", "/a/.env", "/x.env"},
		{"./x.env", "/a/.env", "/x.env"},
		{"c/x.env", "/a/.env", "/c/x.env"},
	} {
		if got := (policy.Transform{Substitute: tt.text}).Target(tt.at); got != tt.want {
			t.Errorf("%s for %s is %s, want %s", tt.text, tt.at, got, tt.want)
		}
	}
}

func TestTransformsThatCannotBe(t *testing.T) {
	both := policy.Transform{Redact: policy.Env, Substitute: "x"}
	for _, r := range []policy.Rule{
		{Pattern: "a", Permission: policy.Read, Transform: both},
		{Pattern: "a", Permission: policy.Read, Transform: policy.Transform{Redact: 9}},
		{Pattern: "a", Permission: policy.None, Transform: policy.Transform{Redact: policy.Env}},
		{Pattern: "a", Permission: policy.View, Transform: policy.Transform{Redact: policy.Env}},
		{Pattern: "a", Permission: policy.Write, Transform: policy.Transform{Redact: policy.Env}},
		{Pattern: "a", Permission: policy.Read, Origin: policy.OriginFlag, Transform: policy.Transform{Redact: policy.Env}},
		substitute("a", "../x"), substitute("a", "b/../../x"), substitute("a", "/"), substitute("a", "."), substitute("a", "x/"),
		substitute("a", "x\x00"), substitute("a", "\xff"), substitute("a", "\x00x"), substitute("a", strings.Repeat("x", 256)),
	} {
		if _, err := policy.Compile([]policy.Rule{r}, policy.Options{}); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%+v: %v, want Invalid", r, err)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, name := range policy.Formats() {
		if f, err := policy.ParseFormat(name); err != nil || f.String() != name {
			t.Errorf("ParseFormat(%q) = %v, %v", name, f, err)
		}
	}
	for _, bad := range []string{"", "yml", "ENV"} {
		if _, err := policy.ParseFormat(bad); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("ParseFormat(%q): %v", bad, err)
		}
	}
}

func TestTheJSONOfATransform(t *testing.T) {
	for _, tt := range []struct {
		rule policy.Rule
		want string
	}{
		{redact("a", policy.Env), `{"pattern":"a","permission":"read","redact":"env"}`},
		{substitute("a", "é/x"), `{"pattern":"a","permission":"read","substitute":"é/x"}`},
	} {
		text, err := json.Marshal(tt.rule)
		if err != nil || string(text) != tt.want {
			t.Errorf("JSON = %s, %v, want %s", text, err, tt.want)
		}
		var got policy.Rule
		if err := json.Unmarshal(text, &got); err != nil || got != tt.rule {
			t.Errorf("read again: %+v, %v", got, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"redact":"xml"}`), &policy.Rule{}); err == nil {
		t.Error("an unknown format is accepted")
	}
}

func TestCheckOfTransforms(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules []policy.Rule
		want  []policy.WarningKind
	}{
		{"sound", append(rules(t, "/**=read"), redact(".env", policy.Env), substitute("/x", "y"), substitute("*.env", "/z")), nil},
		{"a substitute that is hidden", append(rules(t, "/**=read", "/z=none"), substitute("*.env", "/z")), []policy.WarningKind{policy.WarnSubstitute}},
		{"a substitute beside that is viewed", append(rules(t, "/**=read", "/d/y=view"), substitute("/d/x", "y")), []policy.WarningKind{policy.WarnSubstitute}},
		{"a substitute that is redacted", append(rules(t, "/**=read"), redact("/z", policy.Env), substitute("/x", "/z")), []policy.WarningKind{policy.WarnSubstitute}},
		{"itself", append(rules(t, "/**=read"), substitute("/x", "/x")), []policy.WarningKind{policy.WarnSubstitute}},
		{"a place that depends on the file", append(rules(t, "/**=read", "/d/y=none"), substitute("x", "y")), nil},
		{"a flag that shows what is masked", append(rules(t, "/**=read", "--write /a/"), redact("/a/*.json", policy.JSON)), []policy.WarningKind{policy.WarnReveals}},
		{"a flag that shows it at any depth", append(rules(t, "/**=read", "--read **"), redact(".env", policy.Env)), []policy.WarningKind{policy.WarnReveals}},
		{"a flag for another directory", append(rules(t, "/**=read", "--write /b/"), redact("/a/*.json", policy.JSON)), nil},
		{"a flag that closes it", append(rules(t, "/**=read", "--view .env"), redact(".env", policy.Env)), nil},
		{"a tie", append(rules(t, "/**=read", ".env=read"), redact(".env", policy.Env)), []policy.WarningKind{policy.WarnTie}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []policy.WarningKind
			for _, w := range compile(t, tt.rules).Check() {
				got = append(got, w.Kind)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Check (-want +got):\n%s", diff)
			}
		})
	}
}

func TestATransformOfAPolicyAbove(t *testing.T) {
	moved, err := policy.Below([]policy.Rule{substitute("/p/a", "/p/d/x"), substitute("b", "x"), substitute("/q/c", "/x")}, "/p")
	if err != nil {
		t.Fatal(err)
	}
	p := compile(t, moved)
	for path, want := range map[vpath.Path]vpath.Path{"/a": "/d/x", "/e/b": "/e/x"} {
		if got := p.Decide(path).Transform.Target(path); got != want {
			t.Errorf("%s shows %s, want %s", path, got, want)
		}
	}
	for _, outside := range []string{"/x", "/p", "/pq/x"} {
		if _, err := policy.Below([]policy.Rule{substitute("/p/a", outside)}, "/p"); !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), "outside the workspace") {
			t.Errorf("%s: %v", outside, err)
		}
	}
}

func TestAReasonNamesTheTransform(t *testing.T) {
	r := redact(".env", policy.Env)
	r.Source = "p.yaml:3"
	d := compile(t, []policy.Rule{r}).Decide("/.env")
	if want := `read rule ".env" with redact: env (p.yaml:3)`; d.Reason != want {
		t.Errorf("reason %q, want %q", d.Reason, want)
	}
}
