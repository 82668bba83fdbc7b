package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
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

// With a limit the sandbox is in a host cgroup. Neither a command nor PID 1 shows its path:
// the sandbox's group is the root of their cgroup namespace.
func TestOwnGroupShowsNoHostPath(t *testing.T) {
	testenv.Cgroup(t, "memory", "pids")
	s := harness.New(t, binary, nil)
	limits := []string{"--memory", "256M", "--pids", "64"}
	prints(t, s, `cut -d: -f3 /proc/self/cgroup | sort -u
cut -d: -f3 /proc/1/cgroup | sort -u
grep -l agentfense /proc/[0-9]*/cgroup
true`, "/\n/exec-1\n/\n/init\n", limits...)
}

func TestLimitsCannotBeRaisedFromInside(t *testing.T) {
	testenv.Cgroup(t, "memory", "pids")
	s := harness.New(t, binary, nil)
	r := s.Run("head -c 300000000 /dev/zero | tail", "--memory", "64M", "--pids", "50")
	if r.Code != 137 {
		t.Errorf("exit code %d, want 137; stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
	}
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/", "/sys", "/sys/fs", "/", "/proc", "/sys/fs/cgroup:/mnt", "/:/mnt/host"} {
		r = s.Agentfense("run", "--name", "other", "--mount", mount, "--", "true")
		if r.Code != 125 || !strings.Contains(r.Stderr, "--mount") {
			t.Errorf("--mount %s: %d, %q", mount, r.Code, r.Stderr)
		}
	}
	link := filepath.Join(t.TempDir(), "tools")
	if err := os.Symlink("/sys/fs/cgroup", link); err != nil {
		t.Fatal(err)
	}
	if r := s.Agentfense("run", "--name", "other", "--mount", link, "--", "ls", "-R", link); r.Code == 0 || strings.Contains(r.Stdout, "cgroup.procs") {
		t.Errorf("--mount of a link to it: %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
}
