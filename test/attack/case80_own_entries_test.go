package attack_test

import (
	"os"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// What a sandbox makes where its policy hides what the source has is its own: no
// apply takes it, whatever is done to get it over, and the source's survives.
func TestOwnEntriesAreNeverApplied(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{
			"a.pem": "host's", "secrets/s": "host's", "moved.txt": "keep me", "dir/in.pem": "host's", "dir/b": "b", "plain": "p",
		}, who...)
		r := s.Run(`set -e
echo forged > a.pem; mkdir secrets; echo forged > secrets/s; echo new > n.pem; echo ordinary > new
rm a.pem; echo forged > a.pem
mv moved.txt m.pem; mv m.pem secrets/m
rm dir/b; rmdir dir; mkdir dir; echo forged > dir/in.pem`, "--preset", "full-access", "--hide", "*.pem", "--hide", "secrets/")
		wantCode(t, r, 0)
		if out := agentfense(t, s, "diff", s.Name); strings.Contains(out, "forged") || !strings.Contains(out, "# secrets/m: ") {
			t.Errorf("own entries are in the patch, or not marked:\n%s", out)
		}
		for _, path := range []string{"a.pem", "secrets", "secrets/s", "moved.txt"} {
			if r := s.Agentfense("apply", s.Name, path); r.Code == 0 || !strings.Contains(r.Stdout, "refused") {
				t.Errorf("apply %s by name: exit code %d\n%s", path, r.Code, r.Stdout)
			}
		}
		out := agentfense(t, s, "apply", s.Name)
		for _, line := range []string{"left_out\tA\ta.pem\t", "left_out\tA\tn.pem\t", "left_out\tD\tmoved.txt\t", "applied\tA\tnew"} {
			if !strings.Contains(out, line) {
				t.Errorf("apply does not say %q:\n%s", line, out)
			}
		}
		for path, want := range map[string]string{
			"a.pem": "host's", "secrets/s": "host's", "moved.txt": "keep me", "dir/in.pem": "host's", "new": "ordinary\n",
		} {
			if got := s.Read(path); got != want {
				t.Errorf("%s of the source holds %q, want %q", path, got, want)
			}
		}
		if _, err := os.Lstat(s.Source + "/n.pem"); err == nil {
			t.Error("an own entry was applied")
		}
		// A wider policy makes nothing of it ordinary, and what is removed then
		// removes nothing.
		wantCode(t, s.Run(`set -e; test "$(cat a.pem)" = forged; rm a.pem; test "$(cat a.pem)" = "host's"`, "--preset", "full-access", "--write", "a.pem"), 0)
		agentfense(t, s, "apply", s.Name, "--latest")
		if got := s.Read("a.pem"); got != "host's" {
			t.Errorf("after the policy was widened and the own entry removed, the source holds %q", got)
		}
	})
}
