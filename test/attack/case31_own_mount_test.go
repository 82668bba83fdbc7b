package attack_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// With a state directory below the source the supervisor could wait for itself. Therefore
// the directory is hidden, and the supervisor never uses its own mount.
func TestStateBelowTheSource(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a": "a\n"}, who...)
		s.Home = filepath.Join(s.Source, "state")
		prints(t, s, `df . | tail -n 1 | grep -c " $PWD$"; find . | sort; cat state/sandboxes 2>&-
mkdir state 2>&- && echo made; stat -f . > /dev/null && echo b > b && sync . && cat a b`,
			"1\n.\n./a\na\nb\n", "--preset", "full-access")
		if got := agentfense(t, s, "diff", s.Name, "--name-status"); got != "A\tb\n" {
			t.Errorf("diff: %q", got)
		}
		r := s.Agentfense("run", "--name", "inner", "--dir", filepath.Join(s.Home, "sandboxes", s.Name), "--", "true")
		if r.Code != 125 || !strings.Contains(r.Stderr, "state directory") {
			t.Errorf("a sandbox of the state directory: %d, %q", r.Code, r.Stderr)
		}
	})
}
