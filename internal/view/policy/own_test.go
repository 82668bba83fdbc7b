package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func TestWhereOwnEntriesCanBeMade(t *testing.T) {
	own := func(pattern string, priority int32) policy.Rule {
		return policy.Rule{Pattern: pattern, Permission: policy.None, Priority: priority, Own: true}
	}
	strict := func(pattern string, priority int32) policy.Rule {
		return policy.Rule{Pattern: pattern, Permission: policy.None, Priority: priority}
	}
	tests := []struct {
		name  string
		rules []policy.Rule
		path  vpath.Path
		want  bool
	}{
		{"below a directory that is write", presetRules(t, "development"), "/src/x.pem", true},
		{"at the root", presetRules(t, "development"), "/.env", true},
		{"below a directory that is read", presetRules(t, "agent-safe"), "/src/x.pem", false},
		{"below one that is write in it", presetRules(t, "agent-safe"), "/output/x.pem", true},
		{"a path that is not hidden", presetRules(t, "development"), "/src/x", false},
		{"a path that no rule matches", rules(t, "/src/**=write"), "/x", false},
		{"a strict rule", append(rules(t, "**=write"), strict("*.pem", 0)), "/x.pem", false},
		{"a strict rule of an older record", append(presetRules(t, "development"), strict("**/*.pem", 200)), "/x.pem", false},
		{"of two equal rules the strict one wins", append(rules(t, "**=write"), own("*.pem", 0), strict("*.pem", 0)), "/x.pem", false},
		{"in whatever order", append(rules(t, "**=write"), strict("*.pem", 0), own("*.pem", 0)), "/x.pem", false},
		{"the higher rule counts", append(rules(t, "**=write"), strict("*.pem", 0), own("*.pem", 1)), "/x.pem", true},
		{"--hide", append(rules(t, "**=write"), flagRule(t, "--hide", "*.pem")), "/x.pem", true},
		{"--hide=strict:", append(rules(t, "**=write"), flagRule(t, "--hide", "strict:*.pem")), "/x.pem", false},
		{"the project's policy file", append(rules(t, "**=write"), own(".agentfense.yaml", 0)), "/.agentfense.yaml", false},
		{"the workspace itself", append(rules(t, "/a=write"), own("**", 1)), "/", false},
		{"below a hidden directory", append(rules(t, "**=write"), own("secrets/", 0)), "/secrets/x", false},
		{"the hidden directory", append(rules(t, "**=write"), own("secrets/", 0)), "/secrets", true},
		{"where each name can be written", append(rules(t, "/d/*=write"), own("*.pem", 1)), "/d/x.pem", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := compile(t, test.rules)
			if got := p.Decide(test.path); got.Own != test.want || test.want && got.Permission != policy.None {
				t.Errorf("Decide(%s) = %+v, want Own %v", test.path, got, test.want)
			}
			if test.path.IsRoot() {
				return
			}
			if got := p.At(test.path.Dir()).DecideChild(test.path.Base()); got.Own != test.want {
				t.Errorf("DecideChild(%s) = %+v, want Own %v", test.path, got, test.want)
			}
			if test.want && !p.ChildWritable(test.path.Dir()) {
				t.Errorf("the directory of %s does not show that entries can be made", test.path)
			}
		})
	}
	t.Run("not in what is reserved", func(t *testing.T) {
		p := compile(t, append(rules(t, "**=write"), own("/state/", 0)), "/state")
		if p.Decide("/state").Own {
			t.Error("an own entry could be made at a reserved path")
		}
	})
}

func TestAnOwnEntryIsWritable(t *testing.T) {
	p := compile(t, presetRules(t, "development", "--hide gone/"))
	own := vpath.Path("/").Child(vpath.OwnName("secrets"))
	for _, path := range []vpath.Path{own, own.Child("a"), own.Child(".env").Child("b.pem"), "/src/" + vpath.Path(vpath.OwnName("x.pem"))} {
		if d := p.Decide(path); d.Permission != policy.Write || !p.MayMkdir(path) || !p.ChildWritable(path) {
			t.Errorf("Decide(%s) = %+v, want write", path, d)
		}
		if d := p.At(path).DecideChild(".env"); d.Permission != policy.Write || !p.At(path).IsOwn() {
			t.Errorf("DecideChild below %s = %+v, want write", path, d)
		}
	}
	hidden := vpath.Path("/gone").Child(vpath.OwnName("x.pem"))
	if d := p.Decide(hidden); d.Permission != policy.None {
		t.Errorf("an own entry below a hidden directory = %+v, want none", d)
	}
	if s := p.At(hidden); s.DecideChild("a").Permission != policy.None {
		t.Error("what is below an own entry below a hidden directory shows")
	}
}

func TestARecordWithoutOwnIsStrict(t *testing.T) {
	var r policy.Rule
	if err := json.Unmarshal([]byte(`{"pattern":"**/*.pem","permission":"none","type":"glob"}`), &r); err != nil || r.Own {
		t.Errorf("an old record gives %+v, %v, want a strict rule", r, err)
	}
	r.Own = true
	text, err := json.Marshal(r)
	var again policy.Rule
	if err != nil || json.Unmarshal(text, &again) != nil || again != r {
		t.Errorf("%s became %+v", text, again)
	}
	if _, err := policy.Compile([]policy.Rule{{Pattern: "a", Permission: policy.Read, Own: true}}, policy.Options{}); err == nil {
		t.Error("own was accepted on a rule that hides nothing")
	}
}
