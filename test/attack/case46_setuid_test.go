package attack_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// No setuid program gives privileges: not the system's, not one in the source, not one made
// inside.
func TestSetuidGivesNothing(t *testing.T) {
	testenv.Root(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		id, err := os.ReadFile("/usr/bin/id")
		if err != nil {
			t.Fatal(err)
		}
		planted := filepath.Join(s.Source, "planted")
		if err := os.WriteFile(planted, id, 0o755); err != nil {
			t.Fatal(err)
		}
		s.Own(planted)
		if err := os.Chmod(planted, 0o755|os.ModeSetuid|os.ModeSetgid); err != nil { // root's
			t.Fatal(err)
		}
		prints(t, s, `me=$(id -u)
test "$(./planted -ru)$(./planted -u)" = "$me$me" || echo planted
cp planted mine && chmod 6755 mine
stat -c %a planted mine
test "$(./mine -u)" = "$me" || echo mine
cp planted /tmp/mine && chmod 4755 /tmp/mine && test "$(/tmp/mine -u)" = "$me" || echo tmp
find / -xdev -perm /6000 -type f 2>&- | while read f; do test -u "$f" && test -w "$f" && echo "$f"; done
su -c id 2>&- </dev/null && echo su
sed -n 's/^NoNewPrivs:.//p; s/^CapBnd:.//p' /proc/self/status
grep " $PWD fuse" /proc/mounts | grep -o nosuid`, "755\n755\n0000000000000000\n1\nnosuid\n", "--preset", "full-access")
		agentfense(t, s, "apply", s.Name)
		info, err := os.Stat(filepath.Join(s.Source, "mine"))
		if err != nil || info.Mode() != 0o755 {
			t.Errorf("the applied file: %v, %v", info, err)
		}
	})
}
