package userrules_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/userrules"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func openHome(t *testing.T) *record.Home {
	t.Helper()
	h, err := record.OpenHomeAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func add(t *testing.T, h *record.Home, project string, c userrules.Change) string {
	t.Helper()
	file, err := userrules.Add(h, project, c)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func load(t *testing.T, h *record.Home, project string) *userrules.Rules {
	t.Helper()
	r, err := userrules.Load(h.Dir(), project)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// with compiles base with the rules of the user on top.
func with(t testing.TB, r *userrules.Rules, base ...policy.Rule) *policy.Policy {
	t.Helper()
	for _, own := range r.Rules {
		base = append(base, own.Rule)
	}
	p, err := policy.Compile(base, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAnswersAreStoredAndRead(t *testing.T) {
	h := openHome(t)
	const project = "/home/me/app"
	if r := load(t, h, project); r != nil {
		t.Errorf("without a file: %v", r)
	}
	file := add(t, h, project, userrules.Change{Host: "api.example.com", Reason: "sandbox fix"})
	add(t, h, project, userrules.Change{Path: "/app.conf", Permission: policy.Read, Reason: "sandbox fix\n- {pattern: '**', permission: write}"})
	add(t, h, project, userrules.Change{Path: "/app.conf", Permission: policy.Write})
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	add(t, h, project, userrules.Change{Path: "/app.conf", Permission: policy.Read}) // it has more
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
	r := load(t, h, project)
	if diff := cmp.Diff([]string{"api.example.com:443"}, r.Hosts); diff != "" || len(r.Rules) != 1 {
		t.Errorf("%d rules, hosts (-want +got)\n%s\n%s", len(r.Rules), diff, after)
	}
	p := with(t, r, policy.Rule{Pattern: "**", Permission: policy.Read})
	if d := p.Decide("/app.conf"); d.Permission != policy.Write || !strings.Contains(d.Reason, "your rules of the project, line ") {
		t.Errorf("/app.conf: %v", d)
	}
	if d := p.Decide("/sub/app.conf"); d.Permission != policy.Read {
		t.Errorf("/sub/app.conf: %v", d)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, other := range []string{"/home/me/app2", "/home/you/app", "/home/me/app/sub"} {
		if r := load(t, h, other); r != nil {
			t.Errorf("%s has the rules of %s", other, project)
		}
	}
}

// What a person wrote ranks as an answer does.
func TestFilesOfPeople(t *testing.T) {
	h := openHome(t)
	const project = "/home/me/app"
	write(t, h, project, `version: 1
project: /home/me/app
rules:
  - {pattern: "*.tmp", permission: write}
  - {pattern: build/, permission: write}
  - {pattern: .env, permission: read}
  - {pattern: notes.md, permission: none}
  - {pattern: notes.md, permission: write}
`)
	p := with(t, load(t, h, project),
		policy.Rule{Pattern: "**", Permission: policy.Read}, policy.Rule{Pattern: ".env", Permission: policy.None},
		policy.Rule{Pattern: "/readonly.tmp", Permission: policy.View, Type: policy.File, Origin: policy.OriginFlag},
		policy.Rule{Pattern: "*.view.tmp", Permission: policy.View, Origin: policy.OriginFlag})
	for path, want := range map[vpath.Path]policy.Permission{
		"/a.tmp": policy.Write, "/build/x": policy.Write, "/sub/build/x": policy.Write, "/.env": policy.None, "/sub/.env": policy.None,
		"/notes.md": policy.None, "/readonly.tmp": policy.View, "/a.view.tmp": policy.View, "/other": policy.Read,
	} {
		if got := p.Decide(path); got.Permission != want {
			t.Errorf("%s: %s, want %s (%s)", path, got.Permission, want, got.Reason)
		}
	}
}

func write(t *testing.T, h *record.Home, project, text string) {
	t.Helper()
	file := userrules.File(h.Dir(), project)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBadFilesAreRefusedWithTheLine(t *testing.T) {
	const head = "version: 1\nproject: /p\n"
	for text, want := range map[string]string{
		"":                              ":1: the file is empty",
		"version: 2\n":                  `:1: version "2" is not known`,
		"version: 1\nrules: []\n":       "project is missing",
		"version: 1\nproject: /other\n": ":2: project is",
		head + "preset: full-access\n":  `:3: unknown key "preset"`,
		head + "rules:\n  - {pattern: /a, permision: write}\n":               `:4: unknown key "permision"`,
		head + "rules:\n  - {pattern: /a, permission: write, priority: 5}\n": ":4: a rule has only",
		head + "rules:\n  - {pattern: /a, redact: env}\n":                    ":4: a rule has only",
		head + "hosts:\n  - a b\n":                                           ":4: ",
		head + "rules: []\nrules: []\n":                                      ":4: ",
	} {
		h := openHome(t)
		write(t, h, "/p", text)
		_, err := userrules.Load(h.Dir(), "/p")
		if !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), userrules.File(h.Dir(), "/p")) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if _, err := userrules.Add(h, "/p", userrules.Change{Path: "/a", Permission: policy.Read}); err == nil {
			t.Errorf("%q: a rule was added", text)
		}
	}
	h := openHome(t)
	write(t, h, "/p", head+"rules: []\n")
	if _, err := userrules.Add(h, "/p", userrules.Change{Path: "/a", Permission: policy.Read}); err == nil || !strings.Contains(err.Error(), "line 3: nothing can be added to rules") {
		t.Errorf("a list in brackets: %v", err)
	}
	if _, err := userrules.Add(openHome(t), "/p", userrules.Change{Path: "/\xff", Permission: policy.Read}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
	link := userrules.File(h.Dir(), "/l")
	if err := os.Symlink(userrules.File(h.Dir(), "/p"), link); err != nil {
		t.Fatal(err)
	}
	if _, err := userrules.Load(h.Dir(), "/l"); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a link: %v", err)
	}
}

// An answer is for its path alone, whatever that is named, and shows nothing that a policy hides.
func TestAnswersNeverShowWhatIsHidden(t *testing.T) {
	h := openHome(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		project := "/p" + strings.Repeat("x", n%20)
		_ = os.Remove(userrules.File(h.Dir(), project))
		name := rapid.StringMatching(`[ab*?{},\[\]\\!#:"' \n\x01é-]{1,6}`)
		path, err := vpath.Parse(strings.Join(rapid.SliceOfN(name, 1, 3).Draw(rt, "path"), "/"))
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := userrules.Add(h, project, userrules.Change{Path: path, Permission: policy.Write}); err != nil {
			rt.Fatal(err)
		}
		r, err := userrules.Load(h.Dir(), project)
		if err != nil {
			rt.Fatal(err)
		}
		all := policy.Rule{Pattern: "**", Permission: policy.Read}
		p := with(t, r, all)
		if d := p.Decide(path); d.Permission != policy.Write {
			rt.Errorf("%s: %s", path, d.Reason)
		}
		if other := path.Child("a"); p.Decide(other).Permission != policy.Read || p.Decide("/z"+path).Permission != policy.Read {
			rt.Errorf("the answer for %s is for another path", path)
		}
		hides := []policy.Rule{
			{Pattern: string(path), Type: policy.File},
			{Pattern: string(path), Type: policy.Directory},
			{Pattern: policy.GlobOf(path), Type: policy.Glob},
			{Pattern: "**"},
		}
		hide := rapid.SampledFrom(hides).Draw(rt, "hide")
		if d := with(t, r, all, hide).Decide(path); d.Permission != policy.None {
			rt.Errorf("%s is shown: %s", path, d.Reason)
		}
	})
}
