package secrets

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

func TestValuesComeFromTheirSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	document := filepath.Join(t.TempDir(), "login.json")
	if err := os.WriteFile(document, []byte(`{"login": {"token": "from-a-json-file", "n": 1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &Finder{Getenv: func(name string) string { return map[string]string{"KEY": "from-the-environment"}[name] }}
	for text, want := range map[string]string{
		"KEY@a.example.com":                                     "from-the-environment",
		"OTHER=env:KEY@a.example.com":                           "from-the-environment",
		"KEY=file:" + file + "@a.example.com":                   "from-a-file",
		"KEY=cmd:printf 'from-a-command\\r\\n'@a.example.com":   "from-a-command",
		"KEY=json:login.token:" + document + "@a.example.com":   "from-a-json-file",
		"KEY=json:login.n:" + document + "@a.example.com":       "",
		"KEY=json:token:" + document + "@a.example.com":         "",
		"KEY=json:login.token:" + file + "@a.example.com":       "",
		"MISSING@a.example.com":                                 "",
		"KEY=file:" + file + "x@a.example.com":                  "",
		"KEY=cmd:echo a-value-not-to-tell; false@a.example.com": "",
		"KEY=cmd:echo a value@a.example.com":                    "",
	} {
		all, err := parse([]hostlist.Secret{{Text: text}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.value(t.Context(), all[0])
		if got != want || (want == "") != errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: got %q, %v; want %q", text, got, err, want)
		}
	}
}

// The value of a JSON file is read again each time, that of other sources once.
func TestAValueThatAnotherProgramChanges(t *testing.T) {
	document := filepath.Join(t.TempDir(), "login.json")
	calls := 0
	f := &Finder{Getenv: func(string) string { calls++; return "from-the-environment" }}
	all, err := parse([]hostlist.Secret{{Text: "A=json:token:" + document + "@a.example.com"}, {Text: "B=env:B@a.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the-first-token", "the-second-token"} {
		if err := os.WriteFile(document, []byte(`{"token": "`+want+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{want, "from-the-environment"} {
			if got, err := f.value(t.Context(), all[i]); err != nil || got != want {
				t.Errorf("%s: got %q, %v; want %q", all[i].Name, got, err, want)
			}
		}
	}
	if calls != 1 {
		t.Errorf("the variable was read %d times", calls)
	}
}

func TestPlaceholdersStay(t *testing.T) {
	f := &Finder{Getenv: func(string) string { return "a-value-of-the-caller" }}
	first, err := f.Complete(t.Context(), []hostlist.Secret{{Text: "A=env:A@a.example.com:443"}, {Text: "B=env:B@a.example.com:443"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.Complete(t.Context(), []hostlist.Secret{{Text: "A=env:X@b.example.com:443", Allow: []string{"GET /"}}}, first)
	if err != nil {
		t.Fatal(err)
	}
	if first[0].Placeholder == "" || first[0].Placeholder == first[1].Placeholder || second[0].Placeholder != first[0].Placeholder {
		t.Errorf("first %v, then %v", first, second)
	}
}

func TestTheSupervisorHasNoVariableOfASecret(t *testing.T) {
	r := record.Record{Secrets: []hostlist.Secret{{Text: "A=env:MINE@a.example.com"}, {Text: "B=file:/b@a.example.com"}}}
	got, err := Without([]string{"PATH=/bin", "MINE=value", "A=1", "B=2", "MINER=3"}, &r)
	if err != nil || !slices.Equal(got, []string{"PATH=/bin", "A=1", "B=2", "MINER=3"}) {
		t.Errorf("got %q, %v", got, err)
	}
	r.Secrets[0].Text = "A"
	if _, err := Without(nil, &r); !errdefs.Is(err, errdefs.Precondition) || strings.Contains(err.Error(), "value") {
		t.Errorf("a damaged secret: %v", err)
	}
}
