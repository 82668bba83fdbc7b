package badinput_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A disk that fills up under the delta is ENOSPC inside. What had been written
// is whole, can be applied and, once there is room, gone on with. The kernel forgets a removed file
// after rm has ended, and only then its space is free: the script tries for 10 s.
func TestDiskFullBelowTheDelta(t *testing.T) {
	ownMounts(t)
	s := harness.New(t, binary, map[string]string{"old": "old\n", "big": strings.Repeat("0123456789abcdef", 1<<16)})
	mountTmpfs(t, s.Home, "size=40m,mode=0700")
	r := s.Run(`echo first > first; echo changed > old; cp big copy
i=0; while echo $i > many$i; do i=$((i+1)); test $i = 2000 && break; done 2>/dev/null
cat /dev/zero > full; echo code $?
cat first old; echo last >> first; cmp big copy && rm copy && echo removed
i=0; until echo after > after || test $i = 100; do i=$((i+1)); sleep 0.1; done; cat after`, "--preset", "full-access")
	if r.Code != 0 || !strings.Contains(r.Stderr, "No space left on device") ||
		!strings.HasSuffix(r.Stdout, "code 1\nfirst\nchanged\nremoved\nafter\n") {
		t.Errorf("exit code %d, stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
	}
	status := s.Agentfense("diff", s.Name, "--name-status")
	for _, want := range []string{"A\tfirst\n", "M\told\n", "A\tafter\n"} {
		if !strings.Contains(status.Stdout, want) {
			t.Errorf("diff does not tell %q:\n%s%s", want, status.Stdout, status.Stderr)
		}
	}
	wantCode(t, s.Agentfense("apply", s.Name, "first", "old"), 0)
	if !strings.HasPrefix(s.Read("first"), "first\n") || s.Read("old") != "changed\n" {
		t.Errorf("applied, first holds %q and old %q", s.Read("first"), s.Read("old"))
	}
	prints(t, s.Run("rm full many*; head -c 2000000 /dev/zero > again; stat -c %s again"), "2000000\n")
	wantCode(t, s.Agentfense("audit", s.Name, "--verify"), 0)
}

// With no room left at all nothing starts or everything works, and what is
// there stays.
func TestDiskFullBeforeTheStart(t *testing.T) {
	ownMounts(t)
	s := harness.New(t, binary, map[string]string{"a": "a\n"})
	mountTmpfs(t, s.Home, "size=32m,mode=0700")
	prints(t, s.Run("echo kept > kept", "--preset", "full-access"), "")
	filler := filepath.Join(s.Home, "filler")
	if err := os.WriteFile(filler, make([]byte, 64<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	for _, name := range []string{s.Name, "new"} {
		r := s.Agentfense("run", "--name", name, "--", "cat", "a")
		if r.Code != 125 || !strings.Contains(r.Stderr, "no space left on device") {
			wantCode(t, r, 0)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	prints(t, s.Run("cat a kept"), "a\nkept\n")
	wantCode(t, s.Agentfense("audit", s.Name, "--verify"), 0)
}
