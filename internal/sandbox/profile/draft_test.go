package profile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/learn"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// What a command chose, such as names of files and hosts, stays in its comment, and becomes no key
// of the profile.
func TestADraftHoldsWhatACommandChose(t *testing.T) {
	evil := "x\nargs: [evil]\n\u2028args: [evil]\u2029args: [evil]\u0085args: [evil]\rargs: [evil]\n# "
	d := &profile.Draft{
		Name: "mine", Command: "mine", Program: "/bin/" + evil, Shown: []string{"/" + evil}, From: evil, Preset: "development",
		Rules: []learn.Rule{
			{Rule: policy.Rule{Pattern: "/.mine/a\"b", Permission: policy.Write}, Evidence: "created"},
			{Rule: policy.Rule{Pattern: "/.cache/x/**", Permission: policy.Write}, Evidence: "created"},
			{Rule: policy.Rule{Pattern: "/.mine/x.pem", Permission: policy.Read, Priority: 100}, Evidence: "read"},
		},
		Secrets: []profile.Look{{Path: vpath.Path("/" + evil), How: evil}},
		Hosts:   []learn.Host{{Text: "api.example.com", Connections: 2}},
		Refused: []profile.RefusedHost{{Text: evil, Count: 1}, {Text: "a.example.com:8080", Count: 3}},
		Notes:   []string{evil},
	}
	text, err := d.Text()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p, err := profile.Parse("mine", "mine.yaml", text, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(p.Args) > 0 || !slices.Equal(p.Hosts, []string{"api.example.com"}) || len(p.Login)+len(p.Secrets)+len(p.Set)+len(p.Pass) > 0 || !p.HideSecretNames {
		t.Errorf("%+v\n%s", p, text)
	}
	home, err := policy.Compile(p.HomeRules(), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[vpath.Path]policy.Permission{
		"/": policy.Write, "/.mine": policy.Write, "/.mine/a\"b": policy.Write, "/.mine/other": policy.None, "/.cache/x/y": policy.None,
		"/.mine/x.pem": policy.Read, "/.mine/y.pem": policy.None,
	} {
		if got := home.Decide(path); got.Permission != want {
			t.Errorf("%s is %v, want %v\n%s", path, got.Permission, want, text)
		}
	}
	for _, want := range []string{"\n#   - a.example.com:8080 # refused 3 times\n", "  - \"api.example.com\" # connected 2 times\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	d.Rules[0].Pattern = "/\xff"
	if _, err := d.Text(); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a pattern that is no text: %v", err)
	}
}

// hide_secret_names hides in what rules show.
func TestHideSecretNames(t *testing.T) {
	for hide, want := range map[string]policy.Permission{"": policy.Read, "hide_secret_names: false": policy.Read, "hide_secret_names: true": policy.None} {
		p, err := profile.Parse("x", "x.yaml", []byte("version: 1\ncommand: x\nhome: [{pattern: /.x/, permission: read}]\n"+hide), nil)
		if err != nil {
			t.Fatal(err)
		}
		home, err := policy.Compile(p.HomeRules(), policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := home.Decide("/.x/id_rsa"); got.Permission != want {
			t.Errorf("%q: %v, want %v", hide, got.Permission, want)
		}
	}
}
