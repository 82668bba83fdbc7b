package attack_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// The winning rule does not depend on the order of the rules, the stricter one wins a tie,
// and a probable mistake is reported.
func TestRuleOrderDecidesNothing(t *testing.T) {
	rules := []string{
		rule("**", "read"), rule("tie*", "write"), rule("*ied", "none"), rule("/secret/**", "none"),
		rule("/secret/public", "read"), rule("secrte/**", "none"), rule("**", "read"),
		rule("/twice", "write"), rule("/twice", "view"),
	}
	s := harness.New(t, binary, map[string]string{
		"tied": "x", "tiex": "x", "secret/key": "x", "secret/public": "seen", "plain": "x", "twice": "x",
	})
	file := filepath.Join(t.TempDir(), "policy.yaml")
	var answers []string
	for n := range 6 {
		if n%2 == 1 {
			slices.Reverse(rules)
		} else if n > 0 {
			rules = append(rules[n:], rules[:n]...)
		}
		text := "version: 1\nrules:\n" + strings.Join(rules, "")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		r := s.Run(`for f in tied tiex secret secret/key secret/public plain twice; do
	if test -e $f; then printf "$f "; test -r $f && printf r; test -w $f && printf w; echo; fi
done; ls -A secret`, "--policy", file)
		if r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		answers = append(answers, r.Stdout)
	}
	const want = "tiex rw\nsecret r\nsecret/public r\nplain r\ntwice \npublic\n"
	for _, got := range answers {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	checked := agentfense(t, s, "policy", "check", file)
	for _, kind := range []string{"duplicate", "tie", "traversable"} {
		if !strings.Contains(agentfense(t, s, "policy", "check", file, "--json"), `"`+kind+`"`) {
			t.Errorf("policy check does not tell of a %s:\n%s", kind, checked)
		}
	}
	explained := agentfense(t, s, "policy", "explain", "--policy", file, "tied", "secret/key", "secret/public")
	for path, winner := range map[string]string{
		"/tied: none": "*ied", "/secret/key: none": "/secret/**", "/secret/public: read": "/secret/public",
	} {
		_, of, ok := strings.Cut(explained, path+"\n")
		decision, _, _ := strings.Cut(of, "\n")
		if !ok || !strings.Contains(decision, winner) {
			t.Errorf("explain does not name %s as what decides %s:\n%s", winner, path, explained)
		}
	}
	// A misspelt rule matches nothing; which it is, is told.
	idle := 0
	for line := range strings.Lines(checked) {
		if strings.Contains(line, "matches nothing") {
			idle++
			if !strings.Contains(line, `"secrte/**"`) {
				t.Errorf("policy check: %s", line)
			}
		}
	}
	if idle != 1 {
		t.Errorf("policy check tells of %d rules that match nothing, want secrte/**:\n%s", idle, checked)
	}
}
