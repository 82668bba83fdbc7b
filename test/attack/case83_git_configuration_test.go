package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// TestTheCallersGitConfigurationStaysOutside: git inside knows the caller's name and
// address and nothing else; nothing that the configurations of the caller or of a
// hostile repository name is run or read for that.
func TestTheCallersGitConfigurationStaysOutside(t *testing.T) {
	testenv.Command(t, "git")
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{
			".git/HEAD": "ref: refs/heads/main\n", ".git/objects/": "", ".git/refs/": "",
			".git/config":  "[core]\n\tfsmonitor = touch ran\n\thooksPath = .\n[include]\n\tpath = ../inc\n[alias]\n\tx = !touch ran\n",
			"inc":          "[user]\n\temail = planted@example.org\n",
			".home/.token": "secret",
		}, who...)
		home := filepath.Join(s.Source, ".home")
		s.Write(".home/.gitconfig", `[user]
	name = "Me \"and\" me"
	email = "me@example.org"
	signingKey = SECRET1
[credential]
	helper = "!echo SECRET2"
[http]
	extraHeader = "Authorization: SECRET3"
[alias]
	y = "!touch ran"
[includeIf "gitdir:`+s.Source+`/"]
	path = .token
[includeIf "gitdir:/**"]
	path = fifo
[url "https://SECRET4@example.org/"]
	insteadOf = x
`)
		if err := unix.Mkfifo(filepath.Join(home, "fifo"), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Setenv("HOME", home)
		t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
		r := s.Run("git config --system user.name; git config --system user.email; git config --system --name-only --list; cat /etc/gitconfig | grep SECRET", "--preset", "development", "--hide", ".home/")
		want := "Me \"and\" me\nme@example.org\ncore.checkstat\nuser.name\nuser.email\nsafe.directory\n"
		if r.Stdout != want {
			t.Errorf("git inside has %q, want %q\n%s", r.Stdout, want, r.Stderr)
		}
		if strings.Contains(agentfense(t, s, "inspect", s.Name, "--json"), "SECRET") {
			t.Error("the record holds a secret")
		}
		if _, err := os.Lstat(filepath.Join(s.Source, "ran")); !os.IsNotExist(err) {
			t.Errorf("something of the configuration was run: %v", err)
		}
	})
}
