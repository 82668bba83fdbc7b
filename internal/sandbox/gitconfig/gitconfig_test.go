package gitconfig_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
)

// world is a home directory with files, and the environment of its user.
type world struct {
	t    *testing.T
	home string
	env  map[string]string
}

func newWorld(t *testing.T, files map[string]string) *world {
	w := &world{t, t.TempDir(), map[string]string{"GIT_CONFIG_NOSYSTEM": "1"}}
	w.env["HOME"] = w.home
	for name, content := range files {
		path := filepath.Join(w.home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(content, "$HOME", w.home)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) user(dir string) gitconfig.User {
	return gitconfig.Of(func(name string) string { return w.env[name] }, filepath.Join(w.home, dir))
}

// asks is what git itself says.
func (w *world) asks(dir string) gitconfig.User {
	w.t.Helper()
	get := func(name string) string {
		cmd := exec.Command("git", "config", "--get", name)
		cmd.Dir = filepath.Join(w.home, dir)
		for name, value := range w.env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, _ := cmd.Output() // absent: exit 1
		return strings.TrimSuffix(string(out), "\n")
	}
	return gitconfig.User{Name: get("user.name"), Email: get("user.email")}
}

func TestASentUserIsChecked(t *testing.T) {
	tests := []struct {
		name string
		user gitconfig.User
		kind errdefs.Kind
	}{
		{"nobody", gitconfig.User{}, 0},
		{"quotes and other letters", gitconfig.User{Name: `Ä "B" #`, Email: "a@b.c"}, 0},
		{"a line of its own", gitconfig.User{Name: "a\n[core]"}, errdefs.Invalid},
		{"a NUL", gitconfig.User{Email: "a\x00"}, errdefs.Invalid},
		{"too long", gitconfig.User{Email: strings.Repeat("a", 1025)}, errdefs.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.user.Check()
			if tt.kind == 0 && err != nil || tt.kind != 0 && !errdefs.Is(err, tt.kind) {
				t.Errorf("Check() = %v, want kind %v", err, tt.kind)
			}
		})
	}
}

func TestTheUserIsWhomGitTakes(t *testing.T) {
	testenv.Command(t, "git")
	tests := []struct {
		name  string
		files map[string]string
		want  gitconfig.User
	}{
		{"nothing configured", nil, gitconfig.User{}},
		{"as git config writes it", map[string]string{".gitconfig": "[user]\n\tname = A B\n\temail = a@b.c\n"}, gitconfig.User{Name: "A B", Email: "a@b.c"}},
		{"the later file counts more", map[string]string{
			".config/git/config": "[user]\nname=X\nemail=x@y", ".gitconfig": "[user]name = Z\n",
		}, gitconfig.User{Name: "Z", Email: "x@y"}},
		{"quotes, escapes, comments and case", map[string]string{
			".gitconfig": "; c\n[USER] ; c\n\tNAME = \"a \\\"b\\\"  \" c\\\\ # d\n\temail = x\\\n y  \n",
		}, gitconfig.User{Name: `a "b"   c\`, Email: "x y"}},
		{"another section's name is none", map[string]string{
			".gitconfig": "[user]\nname=me\n[user \"x\"]\nname=other\n[alias]\nname=!x\n[other.sub]\nname=y\n[a \"b]\\\"\"]\nname=q",
		}, gitconfig.User{Name: "me"}},
		{"an included file", map[string]string{
			".gitconfig": "[include]\npath = ~/more\n[include]\npath=absent\n[user]\nemail=last", "more": "[user]\nname=m\nemail=first",
		}, gitconfig.User{Name: "m", Email: "last"}},
		{"files that include each other", map[string]string{
			".gitconfig": "[user]\nname=m\n[include]\npath=b", "b": "[user]\nemail=e\n",
		}, gitconfig.User{Name: "m", Email: "e"}},
		{"by the place of the repository", map[string]string{
			".gitconfig": "[user]\nname=me\n[includeIf \"gitdir:~/work/\"]\npath=forwork\n[includeIf \"gitdir:~/other/\"]\npath=other\n[includeIf \"gitdir/i:WORK/Repo/.git\"]\npath=case",
			"forwork":    "[user]\nemail=at@work", "other": "[user]\nname=wrong", "case": "[user]\nname=cased",
		}, gitconfig.User{Name: "cased", Email: "at@work"}},
		{"an empty value", map[string]string{".gitconfig": "[user]\nname=me\nname=\n"}, gitconfig.User{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.files)
			repo := filepath.Join(w.home, "work/repo/below")
			if err := os.MkdirAll(repo, 0o755); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("git", "init", "-q", filepath.Dir(repo)).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := w.user("work/repo/below"); got != tt.want {
				t.Errorf("it is %+v, want %+v", got, tt.want)
			}
			if git := w.asks("work/repo/below"); git != tt.want {
				t.Errorf("git says %+v, want %+v", git, tt.want)
			}
		})
	}
}

func TestWhatIsNoConfigurationCountsForNothing(t *testing.T) {
	for _, text := range []string{"[user", "[user]\nname = \"x", "name = x", "[user]\nname = \\x", "[user]\n= x", "[]\nname=x", "[user]\nna_me"} {
		w := newWorld(t, map[string]string{".gitconfig": text})
		if got := w.user(""); got != (gitconfig.User{}) {
			t.Errorf("%q says %+v", text, got)
		}
	}
	w := newWorld(t, map[string]string{".gitconfig/dir": ""})
	if got := w.user(""); got != (gitconfig.User{}) {
		t.Errorf("a directory says %+v", got)
	}
}

// TestWhatIsWrittenIsWhatGitReads: git reads back every value, and no other variable.
func TestWhatIsWrittenIsWhatGitReads(t *testing.T) {
	testenv.Command(t, "git")
	name := "A \"B\" \\ # ; \t\n[alias]\n x = !false"
	c := gitconfig.Inside{User: gitconfig.User{Name: name, Email: "a@b"}, Safe: []string{"/w #1", "*"}}
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, c.Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "config", "-z", "--file", path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "core.checkstat\nminimal\x00user.name\n" + name + "\x00user.email\na@b\x00safe.directory\n/w #1\x00safe.directory\n*\x00"
	if string(out) != want {
		t.Errorf("git reads %q, want %q", out, want)
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add("[user]\nname = \"a\\\"b\" c ; x\n[includeIf \"gitdir:~/x/\"]\npath=y")
	f.Fuzz(func(t *testing.T, text string) {
		w := newWorld(t, nil)
		if err := os.WriteFile(filepath.Join(w.home, ".gitconfig"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		u := w.user("")
		again := newWorld(t, map[string]string{".gitconfig": string(gitconfig.Inside{User: u}.Encode())}).user("")
		if !strings.ContainsRune(u.Name+u.Email, 0) && !strings.Contains(u.Name+u.Email, "$HOME") && again != u {
			t.Errorf("%+v came back as %+v", u, again)
		}
	})
}
