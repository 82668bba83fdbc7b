package attack_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// The cgroup file systems are not there, so no release_agent, no limit and no
// membership can be written (CVE-2022-0492).
func TestNoCgroupFileSystemInside(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		prints(t, s, `ls /sys/fs/cgroup 2>&- && echo listed
grep -E ' cgroup2? ' /proc/mounts
find / -xdev \( -name release_agent -o -name cgroup.procs -o -name memory.max \) 2>&-
cut -d: -f3 /proc/self/cgroup | sort -u
unshare -C true 2>&- && echo unshared
mount -t cgroup2 none /tmp 2>&- && echo mounted
true`, "/\n")
	})
}

func TestLimitsCannotBeRaisedFromInside(t *testing.T) {
	s := harness.New(t, binary, nil)
	r := s.Run("head -c 300000000 /dev/zero | tail", "--memory", "64M", "--pids", "50")
	if r.Code != 137 {
		t.Errorf("exit code %d, want 137; stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
	}
	r = s.Agentfense("run", "--name", "other", "--mount", "/sys/fs/cgroup", "--", "true")
	if r.Code != 125 || !strings.Contains(r.Stderr, "--mount") {
		t.Errorf("--mount /sys/fs/cgroup: %d, %q", r.Code, r.Stderr)
	}
}
