package attack_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// secretHistory makes a repository with secrets in its work tree, history, other branches, tags,
// stashes and lost commits, and with ids of commits in messages. One commit is about secrets alone.
const secretHistory = `
mkdir -p deploy/prod-keys
echo SECRET-one >.env; echo SECRET-two >deploy/prod-keys/signing.key; echo SECRET-three >listed.txt; echo a >a.txt
git init -q -b main; git add .; git commit -qm first; git tag -a -m tagged v1
echo SECRET-four >.env; git commit -qam "SECRET-message of the secret alone"
echo b >>a.txt; echo SECRET-five >>deploy/prod-keys/signing.key; git commit -qam "after $(git rev-parse HEAD), $(git rev-parse --short HEAD~1)"
git checkout -q -b other; echo SECRET-six >.env; git commit -qam other; git checkout -q main
echo SECRET-seven >.env; git stash -q
git commit -q --allow-empty -m lost; git reset -q --hard HEAD^
git revert --no-edit HEAD >/dev/null; git pack-refs --all; git repack -q -d
echo c >>a.txt; git commit -qam last
printf '# SECRET\nprod-keys/\n/deploy/prod-keys/signing.key\n*.log\n' >>.git/info/exclude
`

// everything prints all that git and the files of the repository tell.
const everything = `set -e
test -z "$(git status --porcelain)" || { git status; exit 3; }
git cat-file --batch-all-objects --batch --buffer
git cat-file --batch-all-objects --batch-check
git log --all -p -c --format=raw; git reflog --all; git for-each-ref; git ls-files --stage; git fsck --full --strict
find .git -type f | while read -r f; do echo "$f"; cat "$f"; done
git verify-pack -v .git/objects/pack/*.idx
cat /proc/self/mountinfo
`

// Nothing in the clean repository tells what the policy hides: no content, no name, no id of the
// real history.
func TestACleanRepositoryTellsNothingHidden(t *testing.T) {
	testenv.Command(t, "git")
	testenv.Overlay(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a.txt": ""}, who...)
		runIn(t, s.Source, secretHistory)
		ownEverything(t, s)
		untouched := s.Untouched()
		flags := []string{"--git=clean:all", "--preset", "development", "--hide", "prod-keys/", "--hide", ".env"}
		r := s.Run(everything, append(flags, "--view", "/listed.txt")...)
		wantCode(t, r, 0)
		hidden := []string{"SECRET", "prod-keys", "signing.key", s.Home}
		hidden = append(hidden, hiddenObjects(t, s.Source)...)
		for _, text := range hidden {
			if at := strings.Index(r.Stdout, text); at >= 0 {
				t.Errorf("the sandbox sees %q: …%q…", text, r.Stdout[max(0, at-80):min(len(r.Stdout), at+80)])
			}
		}
		for _, text := range []string{"a.txt", "last", "after ", "*.log"} {
			if !strings.Contains(r.Stdout, text) {
				t.Errorf("the sandbox does not see %q", text)
			}
		}
		// No other way leads to the source's: not outside through the view, and not by moving what
		// is mounted.
		prints(t, s, "! mv .git g 2>/dev/null; ! rmdir .git 2>/dev/null; ! umount .git 2>/dev/null; ! git rev-parse -q --verify v1; git rev-list --count HEAD", "4\n")
		for _, args := range [][]string{
			{"files", "cat", s.Name, ".git/HEAD"},
			{"policy", "set", s.Name, "--preset", "development", "--hide", "a.txt"},
			{"fork", s.Name, "other"},
		} {
			if r := s.Agentfense(args...); r.Code == 0 {
				t.Errorf("%q succeeds: %s", args, r.Stdout)
			}
		}
		// What is configured and committed inside stays inside.
		wantCode(t, s.Run(committing+`set -e
git config core.fsmonitor 'sh -c "touch .git/pwned"'; printf '#!/bin/sh\ntouch .git/pwned\n' >.git/hooks/post-index-change; chmod +x .git/hooks/*
git checkout -q -b side; git commit -q --allow-empty -m side; git tag mine; test -e .git/pwned`), 0)
		if got := agentfense(t, s, "diff", s.Name, "--name-status"); got != "" {
			t.Errorf("the diff shows %q", got)
		}
		agentfense(t, s, "apply", s.Name)
		untouched()
		// A sandbox that hides less sees more, and one that hides the same uses what was made.
		prints(t, s, "git log --format=%s -1; git rev-parse --abbrev-ref HEAD", "side\nside\n")
		if got, err := os.ReadDir(s.Home + "/clean-git"); err != nil || len(got) != 1 {
			t.Errorf("the cache has %v, %v", got, err)
		}
	})
}

// hiddenObjects are the ids of the repository's commits, trees and tags, and of blobs with secrets,
// in full and abbreviated.
func hiddenObjects(t *testing.T, dir string) []string {
	t.Helper()
	var ids []string
	for line := range strings.Lines(gitIn(t, dir, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")) {
		id, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "blob" && !strings.Contains(gitIn(t, dir, "cat-file", "blob", id), "SECRET") || kind == "tree" && !strings.Contains(gitIn(t, dir, "ls-tree", "-r", id), "e") {
			continue
		}
		ids = append(ids, id, id[:10])
	}
	if len(ids) < 30 {
		t.Fatalf("only %d ids", len(ids))
	}
	return ids
}

// runIn runs a script in a directory of the host.
func runIn(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// ownEverything gives what a test made as itself in the source to the user of the sandbox.
func ownEverything(t *testing.T, s *harness.Sandbox) {
	t.Helper()
	err := filepath.WalkDir(s.Source, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			s.Own(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A hostile repository runs nothing when a clean one is made of it, and its links and alternates
// bring nothing of others in.
func TestMakingACleanRepositoryRunsNothing(t *testing.T) {
	testenv.Command(t, "git")
	testenv.Overlay(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a.txt": "a\n"}, who...)
		runIn(t, s.Source, fmt.Sprintf(`
git init -q -b main; git add .; git commit -qm first
RUN="touch %s/pwned"
cat >.git/config <<END
[core]
	fsmonitor = $RUN
	hooksPath = .git/evil
	sshCommand = $RUN
	alternateRefsCommand = $RUN
[include]
	path = fifo
[uploadpack]
	packObjectsHook = $RUN
[filter "evil"]
	clean = $RUN
	smudge = $RUN
[alias]
	fast-export = !$RUN
[extensions]
	partialClone = evil
[remote "evil"]
	promisor = true
	url = ext::sh -c "$RUN"
END
mkdir .git/evil; printf '#!/bin/sh\n%%s\n' "$RUN" >.git/evil/reference-transaction; chmod +x .git/evil/*; cp .git/evil/* .git/hooks/
mkfifo .git/fifo; echo '* filter=evil export-subst' >.git/info/attributes
git --version >/dev/null`, s.Source))
		ownEverything(t, s)
		wantCode(t, s.Run("git log --format=%s; git status", "--git=clean", "--preset", "development"), 0)
		if exists(s.Source + "/pwned") {
			t.Error("something of the repository ran")
		}
	})
}
