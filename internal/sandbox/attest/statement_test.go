package attest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/view/policy"
)

const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// example is the text of a statement about four changes.
func example(t testing.TB) []byte {
	t.Helper()
	policies, err := policiesOf([]policy.Rule{{Pattern: "**/<&>.env", Permission: policy.None}}, [][]policy.Rule{{}})
	if err != nil {
		t.Fatal(err)
	}
	st := Statement{Type: StatementType, PredicateType: PredicateType, Predicate: Predicate{
		Changes: []Change{}, Policies: policies, Mounts: []Mount{{Name: "data", Mode: "cow", Policies: policies}}, Time: time.Unix(1, 0).UTC(),
		Network: Network{Mode: "named", Allow: []string{"example.com:443"}, Earlier: &EarlierNetwork{Modes: []string{"none"}}},
	}}
	result := apply.Result{Paths: []apply.PathResult{
		{Path: "/a\n", Status: changes.Added, Outcome: apply.Applied},
		{Path: "/d", Status: changes.Added, Outcome: apply.Applied, Implied: true},
		{Path: "/d/gone", Status: changes.Deleted, Outcome: apply.Present},
		{Path: "/late", Status: changes.Modified, Outcome: apply.ChangedSinceReview},
		{Path: "/link", Status: changes.Retyped, Outcome: apply.Applied},
	}}
	shown := manifest.Manifest{
		"/a\n": {Mode: unix.S_IFREG | 0o755, SHA256: sum}, "/d/gone": {}, "/late": {Mode: unix.S_IFREG | 0o644, SHA256: sum}, "/link": {Mode: unix.S_IFLNK, Target: "x"},
	}
	if err := st.add(shown, &result); err != nil {
		t.Fatal(err)
	}
	text, err := st.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAStatementNamesWhatWasApplied(t *testing.T) {
	st, err := Parse(example(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Predicate.Changes) != 3 || st.Predicate.LeftOut != 1 {
		t.Errorf("got %+v", st.Predicate)
	}
	if len(st.Subject) != 2 || st.Subject[1] != (Subject{`a\x0a`, Digest{SHA256: sum}}) {
		t.Errorf("got %+v", st.Subject)
	}
	if all, err := st.Compile(); err != nil || len(all) != 2 {
		t.Errorf("got %v, %v", all, err)
	}
}

// A file cannot have the name of another subject: it would stand for other changes, if its content
// was a list of these.
func TestSubjectsAreNamedApart(t *testing.T) {
	list := []Change{
		{Path: "/changes", Status: "added", Mode: "100644", SHA256: sum}, {Path: "/commit", Status: "added", Mode: "100644", SHA256: sum},
	}
	subjects, err := subjectsOf(list, &Commit{ID: strings.Repeat("a", 40)})
	if err != nil || len(subjects) != 4 {
		t.Fatalf("got %+v, %v", subjects, err)
	}
	names := map[string]bool{}
	for _, s := range subjects {
		if names[s.Name] {
			t.Errorf("two subjects have the name %s", s.Name)
		}
		names[s.Name] = true
	}
}

// The digest of rules is not the only text of them: a key twice, or in another case, would be read
// in two ways.
func TestRulesHaveOneText(t *testing.T) {
	for name, rules := range map[string]string{
		"a key twice":           `[{"pattern":"**/.env","permission":"none","permission":"write"}]`,
		"a key in another case": `[{"pattern":"**/.env","permission":"none","PERMISSION":"write"}]`,
		"an unknown key":        `[{"pattern":"**/.env","permission":"none","note":"x"}]`,
	} {
		st := Statement{Type: StatementType, PredicateType: PredicateType, Predicate: Predicate{
			Changes: []Change{}, Mounts: []Mount{}, Policies: []Policy{{SHA256: sumOf([]byte(rules)), Rules: []byte(rules)}},
		}}
		if err := st.addSubjects(); err != nil {
			t.Fatal(err)
		}
		text, err := st.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(text); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
}

// What was applied without having been shown has no statement.
func TestNothingUnseenIsAttested(t *testing.T) {
	var st Statement
	err := st.add(manifest.Manifest{}, &apply.Result{Paths: []apply.PathResult{{Path: "/a", Status: changes.Deleted, Outcome: apply.Applied}}})
	if !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("got %v", err)
	}
}

// A statement that does not agree with itself is refused, whoever has signed it.
func TestAStatementAgreesWithItself(t *testing.T) {
	text := string(example(t))
	for name, change := range map[string][2]string{
		"another type":            {"in-toto.io/Statement/v1", "in-toto.io/Statement/v2"},
		"another predicate":       {"apply/v1", "apply/v2"},
		"a rule":                  {`"none"`, `"read"`},
		"a digest of a subject":   {`"sha256": "9f86`, `"sha256": "9f87`},
		"a mode":                  {"100755", "100644"},
		"an odd mode":             {"100755", "0100755"},
		"a mode without content":  {"100755", "040755"},
		"a status":                {`"deleted"`, `"added"`},
		"a path that climbs":      {"/d/gone", "/d/../gone"},
		"a relative path":         {`"/link"`, `"link"`},
		"a path twice":            {"/d/gone", "/link"},
		"a link without a target": {`"target": "x"`, `"target": ""`},
		"an unknown key":          {`"left_out"`, `"leftout"`},
		"a key in another case":   {`"left_out"`, `"LEFT_OUT"`},
		"a key twice":             {`"left_out": 1,`, `"left_out": 1, "left_out": 1,`},
		"another form":            {`"left_out": 1,`, `"left_out":1,`},
		"text after it":           {"\n}\n", "\n}\n{}"},
		"no policy":               {"\n", ""},
		"an unknown network":      {`"mode": "named"`, `"mode": "tor"`},
		"an unknown earlier one":  {"\"modes\": [\n          \"none\"", "\"modes\": [\n          \"nothing\""},
		"a host in another form":  {"example.com:443", "Example.com:443"},
		"a list of hosts":         {"example.com:443", "@npm"},
	} {
		altered := strings.Replace(text, change[0], change[1], 1)
		if altered == text {
			t.Fatalf("%s: not in the example", name)
		}
		if _, err := Parse([]byte(altered)); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
}

// A terminal shows the branch as it is written.
func TestACommitHasTheWrittenFormOfItsBranch(t *testing.T) {
	c := Commit{ID: strings.Repeat("a", 40), Branch: `agent/\x1b[2J`, Dir: "/"}
	if err := c.check(); err != nil {
		t.Error(err)
	}
	for _, branch := range []string{"agent/\x1b[2J", "agent/\u202e", `agent/\x61`, `agent/\x`, ""} {
		c.Branch = branch
		if err := c.check(); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q: %v, want Invalid", branch, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example(f))
	f.Add([]byte(`{"_type":"https://in-toto.io/Statement/v1","subject":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		st, err := Parse(text)
		if err != nil {
			if !errdefs.Is(err, errdefs.Invalid) {
				t.Fatal(err)
			}
			return
		}
		again, err := st.Encode()
		if err != nil || !bytes.Equal(again, text) || !json.Valid(text) {
			t.Fatalf("%s is also %s", text, again)
		}
		for i := range st.Predicate.Changes {
			if p, _, err := st.Predicate.Changes[i].entry(); err != nil || strings.Contains(string(p)+"/", "/../") {
				t.Fatalf("change %+v: %v", st.Predicate.Changes[i], err)
			}
		}
	})
}
