package attack_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/needs"
	"github.com/agentfense/agentfense/test/harness"
)

// What git would run on the host comes first in every review, marked, and the
// review itself runs none of it.
func TestGitAbuseIsShownFirst(t *testing.T) {
	needs.Command(t, "git")
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
				Path string          `json:"path"`
				Mark json.RawMessage `json:"mark"`
			} `json:"files"`
		}
		if err := json.Unmarshal([]byte(agentfense(t, s, "diff", s.Name, "--json")), &doc); err != nil {
			t.Fatal(err)
		}
		var got []string
		plain := false
		for _, f := range doc.Files {
			if len(f.Mark) == 0 || string(f.Mark) == "null" {
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
