package attack_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// Every review lists first, with a mark, what git would run on the host, and the review
// itself runs none of it.
func TestGitAbuseIsShownFirst(t *testing.T) {
	testenv.Command(t, "git")
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a.txt": "a\n", ".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n"}, who...)
		r := s.Run(`set -e
echo changed > a.txt
mkdir -p .git/hooks .git/info .git/worktrees/w .git/modules/m
printf '#!/bin/sh\ntouch pwned\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
printf '[core]\n\tfsmonitor = touch pwned\n\thooksPath = evil\n[diff]\n\texternal = touch pwned\n' > .git/config
echo x > .git/modules/m/config; echo x > .git/info/attributes; echo /tmp > .git/worktrees/w/gitdir
echo x > .gitmodules; : > .git/index.lock; printf '#!/bin/sh\n' > tool; chmod +x tool`, "--preset", "full-access")
		wantCode(t, r, 0)
		marked := []string{
			"/.git/config", "/.git/hooks/pre-commit", "/.git/index.lock", "/.git/info/attributes",
			"/.git/modules/m/config", "/.git/worktrees/w/gitdir", "/.gitmodules", "/tool",
		}
		var doc struct {
			Files []struct {
				Path string `json:"path"`
				Risk string `json:"risk"`
			} `json:"files"`
		}
		if err := json.Unmarshal([]byte(agentfense(t, s, "diff", s.Name, "--json")), &doc); err != nil {
			t.Fatal(err)
		}
		var got []string
		plain := false
		for _, f := range doc.Files {
			if f.Risk == "" {
				plain = true
				continue
			}
			if plain {
				t.Errorf("%s comes after what is not marked", f.Path)
			}
			got = append(got, "/"+strings.TrimPrefix(f.Path, "/"))
		}
		slices.Sort(got)
		if !slices.Equal(got, marked) {
			t.Errorf("marked: %q\nwant: %q", got, marked)
		}
		first, last := strings.Index(r.Stderr, ".git/hooks/pre-commit"), strings.Index(r.Stderr, "a.txt")
		if first < 0 || last >= 0 && last < first {
			t.Errorf("the summary does not show the hook first:\n%s", r.Stderr)
		}
		agentfense(t, s, "diff", s.Name)
		if exists(s.Source + "/pwned") {
			t.Error("the review ran what the sandbox had written")
		}
	})
}

// Under the default policy no git directory can be changed or created, at any depth, also
// in writable directories.
func TestDefaultPolicyKeepsGitOut(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		eachHiding(t, func(t *testing.T, h hiding) { defaultPolicyKeepsGitOut(t, h, who...) })
	})
}

func defaultPolicyKeepsGitOut(t *testing.T, h hiding, who ...harness.Option) {
	s := harness.New(t, binary, map[string]string{
		".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n", ".git/hooks/pre-commit": "#!/bin/sh\n",
		"output/x": "x\n", "sub/.git": "gitdir: ../.git/modules/sub\n", "output/a/y": "y\n",
	}, who...)
	untouched := s.Untouched()
	want := "wrote output/.git\nx\nread output/.git\nwrote output/a/.git\nx\nread output/a/.git\nmade tmp/new/.git\n./output/.git\n./output/a/.git\n./tmp/new/.git\ny\n"
	var flags []string
	if h == hidesStrict {
		want, flags = "y\n", h.flags(".git", ".git/", ".gitmodules", ".gitattributes")
	}
	prints(t, s, `for p in .git/config .git/hooks/pre-commit .git/index.lock sub/.git output/.git output/.git/config output/a/.git .gitmodules .gitattributes; do
echo x 2>/dev/null > $p && echo wrote $p
cat $p 2>/dev/null && echo read $p
done
for d in .git .git/hooks output/.git output/a/.git tmp/new/.git; do mkdir -p $d 2>/dev/null && echo made $d; done
git init -q . 2>/dev/null && echo git init; git init -q output 2>/dev/null && echo git init output
mkdir output/mine && mv output/mine output/.git 2>/dev/null && echo renamed; ln -s ../a output/.git 2>/dev/null && echo linked
find . -name '.git*'; echo y > output/y; cat output/y`, want, flags...)
	untouched()
	// Those are the sandbox's own entries, and no apply brings them over.
	agentfense(t, s, "apply", s.Name, "--latest")
	for _, path := range []string{"output/.git", "output/a/.git", "tmp/new/.git"} {
		if exists(s.Source + "/" + path) {
			t.Errorf("apply made %s", path)
		}
	}
	// What looks like git's on some file systems is marked as git's.
	wantCode(t, s.Run("mkdir -p output/.GIT/hooks && echo x > output/.GIT/config && echo x > output/.GIT/hooks/post-merge"), 0)
	var doc struct {
		Files []struct {
			Path string `json:"path"`
			Risk string `json:"risk"`
		} `json:"files"`
	}
	if err := json.Unmarshal([]byte(agentfense(t, s, "diff", s.Name, "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	for _, f := range doc.Files {
		if gits := strings.Contains(f.Path, ".GIT/"); gits != (f.Risk == "runs_on_host") {
			t.Errorf("%s is marked %q", f.Path, f.Risk)
		}
	}
}
