package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// The ordinary user's further group in these tests, and the user.
const (
	furtherGroup = 2345
	ordinaryUser = 1500
)

// owned gives a file of the source an owner, a group and a mode.
func owned(t *testing.T, s *harness.Sandbox, name string, uid, gid int, mode uint32) {
	t.Helper()
	path := filepath.Join(s.Source, name)
	if err := os.Lchown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func owner(t *testing.T, s *harness.Sandbox, name string) (uid, gid, mode uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(s.Source, name), &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid, st.Gid, st.Mode &^ unix.S_IFMT
}

// TestAGroupsDirectoryIsShared: what an ordinary user may change by another group it
// changes inside too, and apply leaves the group as a write would.
func TestAGroupsDirectoryIsShared(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, map[string]string{
		"shared/theirs": "1\n", "shared/moved": "2\n", "shared/gone": "3\n", "mine": "4\n",
	}, harness.OrdinaryIn(ordinaryUser, furtherGroup))
	owned(t, s, "shared", 0, furtherGroup, 0o2775)
	owned(t, s, "shared/theirs", 0, furtherGroup, 0o664)
	owned(t, s, "shared/moved", 0, furtherGroup, 0o664)
	owned(t, s, "shared/gone", 0, 0, 0o600)
	owned(t, s, "mine", ordinaryUser, 0, 0o644)
	prints(t, s, `touch shared/theirs && echo more >>shared/theirs && echo new >shared/new && mkdir shared/dir &&
mv shared/moved shared/there && rm -f shared/gone && echo own >>mine && chmod 640 mine && stat -c %u:%g shared mine shared/theirs | sort -u && id -u`,
		"1500:1500\n1500\n", "--preset", "full-access")
	agentfense(t, s, "apply", s.Name)
	for name, want := range map[string]string{"shared/theirs": "1\nmore\n", "shared/new": "new\n", "shared/there": "2\n", "mine": "4\nown\n"} {
		if got := s.Read(name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(s.Source, "shared/gone")); !os.IsNotExist(err) {
		t.Errorf("shared/gone: %v, want it gone", err)
	}
	for _, name := range []string{"shared/theirs", "shared/new", "shared/there", "shared/dir"} {
		if _, gid, _ := owner(t, s, name); gid != furtherGroup {
			t.Errorf("%s belongs to group %d, want %d, as in a setgid directory", name, gid, furtherGroup)
		}
	}
	if uid, _, mode := owner(t, s, "mine"); uid != ordinaryUser || mode != 0o640 {
		t.Errorf("mine is user %d's with mode %o", uid, mode)
	}
}

// TestAppliedFilesKeepTheGroupThatTheUserIsIn, also where no setgid directory gives it.
func TestAppliedFilesKeepTheGroupThatTheUserIsIn(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, map[string]string{"f": "1\n"}, harness.OrdinaryIn(ordinaryUser, furtherGroup))
	owned(t, s, "f", ordinaryUser, furtherGroup, 0o660)
	if r := s.Run("echo 2 >>f", "--preset", "full-access"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	agentfense(t, s, "apply", s.Name)
	if uid, gid, mode := owner(t, s, "f"); uid != ordinaryUser || gid != furtherGroup || mode != 0o660 || s.Read("f") != "1\n2\n" {
		t.Errorf("f is %d:%d with mode %o and holds %q", uid, gid, mode, s.Read("f"))
	}
}

// TestWhatTheUserMayNotDoTheSandboxMayNot: everything shows as the user's own, and yet
// the view refuses what the source would refuse the user. Each line is what a shell
// command ends with; so it is with the user's own shell outside.
func TestWhatTheUserMayNotDoTheSandboxMayNot(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, map[string]string{
		"theirs": "1\n", "secret": "2\n", "closed/f": "3\n", "closed/mine": "4\n", "closed/sub/": "",
		"sticky/theirs": "5\n", "sticky/mine": "6\n", "open": "7\n", "tool": "#!/bin/sh\n",
	}, harness.OrdinaryIn(ordinaryUser, furtherGroup))
	owned(t, s, "theirs", 0, 0, 0o644)
	owned(t, s, "secret", 0, 0, 0o640)
	owned(t, s, "closed/f", 0, furtherGroup, 0o664)
	owned(t, s, "closed", 0, 0, 0o755)
	owned(t, s, "closed/sub", 0, 0, 0o755)
	owned(t, s, "sticky/theirs", 0, 0, 0o666)
	owned(t, s, "sticky", 0, 0, 0o1777)
	owned(t, s, "open", 0, 0, 0o666)
	owned(t, s, "tool", 0, 0, 0o744)
	script := `t() { if "$@" 2>/dev/null; then echo "yes: $*"; else echo "no: $*"; fi; }
w() { t sh -c "echo x >>$1"; }
w theirs
t cat secret
t truncate -s 0 theirs
t chmod 666 theirs
t touch theirs
t touch -d 2001-01-01 open
t touch open
t chmod 777 closed
t mkdir closed/new
t rm -f closed/mine
w closed/mine
w closed/f
t mkdir closed/after
t touch closed/after
t mkdir closed/sub/x
t rmdir closed/sub
t mv closed/f moved
t ln theirs linked
t rm -f sticky/theirs
t mv -f open sticky/theirs
w sticky/theirs
t rm -f sticky/theirs
t rm -f sticky/mine
t ./tool
t test -w theirs
t test -w closed
t test -x tool
t test -r secret`
	want := `no: sh -c echo x >>theirs
no: cat secret
no: truncate -s 0 theirs
no: chmod 666 theirs
no: touch theirs
no: touch -d 2001-01-01 open
yes: touch open
no: chmod 777 closed
no: mkdir closed/new
no: rm -f closed/mine
yes: sh -c echo x >>closed/mine
yes: sh -c echo x >>closed/f
no: mkdir closed/after
no: touch closed/after
no: mkdir closed/sub/x
no: rmdir closed/sub
no: mv closed/f moved
no: ln theirs linked
no: rm -f sticky/theirs
no: mv -f open sticky/theirs
yes: sh -c echo x >>sticky/theirs
no: rm -f sticky/theirs
yes: rm -f sticky/mine
no: ./tool
no: test -w theirs
no: test -w closed
no: test -x tool
no: test -r secret
`
	prints(t, s, script, want, "--preset", "full-access")
	// None of it was the policy's refusal.
	if log := agentfense(t, s, "audit", s.Name); strings.Contains(log, "denied") {
		t.Errorf("the log tells of refusals by policy:\n%s", log)
	}
}

// TestNobodyOwnsNothingOfOthers: to the user whose number stands for whoever has none in
// a user namespace every file looks its own.
func TestNobodyOwnsNothingOfOthers(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, map[string]string{"theirs": "1\n", "secret": "2\n", "closed/f": "3\n"}, harness.Ordinary)
	owned(t, s, "theirs", 0, 0, 0o644)
	owned(t, s, "secret", 0, 0, 0o600)
	owned(t, s, "closed", 0, 0, 0o755)
	prints(t, s, `sh -c 'echo x >>theirs' || sh -c 'cat secret' || chmod 666 theirs || rm -f closed/f || touch closed/new || echo none`, "none\n", "--preset", "full-access")
}

// TestWhatTheUserMayWriteAndNotReadIsTruncated, as outside; what adds to it would
// need a copy of what the user may not read.
func TestWhatTheUserMayWriteAndNotReadIsTruncated(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, map[string]string{"f": "old\n", "more": "old\n", "empty": ""}, harness.OrdinaryIn(ordinaryUser, furtherGroup))
	for _, name := range []string{"f", "more", "empty"} {
		owned(t, s, name, ordinaryUser, ordinaryUser, 0o200)
	}
	prints(t, s, `echo new >f; echo new >>empty; echo new >>more || echo refused; cat f 2>/dev/null || echo unread`,
		"refused\nunread\n", "--preset", "full-access")
	agentfense(t, s, "diff", s.Name)
	agentfense(t, s, "apply", s.Name)
	for name, want := range map[string]string{"f": "new\n", "empty": "new\n", "more": "old\n"} {
		if got := s.Read(name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
		if uid, _, mode := owner(t, s, name); uid != ordinaryUser || mode != 0o200 {
			t.Errorf("%s is user %d's with mode %o", name, uid, mode)
		}
	}
}

// TestWhatCannotBePlacedIsSaidBefore an apply tries it.
func TestWhatCannotBePlacedIsSaidBefore(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, map[string]string{"closed/mine": "1\n", "sticky/mine": "2\n", "sticky/theirs": "4\n", "f": "3\n"}, harness.OrdinaryIn(ordinaryUser, furtherGroup))
	for _, name := range []string{"closed/mine", "sticky/mine", "f"} {
		owned(t, s, name, ordinaryUser, ordinaryUser, 0o644)
	}
	owned(t, s, "closed", 0, 0, 0o755)
	owned(t, s, "sticky", 0, 0, 0o1777)
	owned(t, s, "sticky/theirs", 0, 0, 0o666)
	const says = "cannot be applied: you may not replace files in its directory"
	r := s.Run("for f in closed/mine sticky/mine sticky/theirs f; do echo new >>$f; done", "--preset", "full-access")
	if r.Code != 0 || strings.Count(r.Stderr, says) != 2 || !strings.Contains(r.Stderr, "M closed/mine  ("+says) || !strings.Contains(r.Stderr, "M sticky/theirs  ("+says) {
		t.Errorf("the summary does not say it of two: exit code %d\n%s", r.Code, r.Stderr)
	}
	if got := agentfense(t, s, "diff", s.Name); strings.Count(got, says) != 2 || !strings.Contains(got, "# closed/mine: "+says) || strings.Count(got, "+new") != 4 {
		t.Errorf("diff:\n%s", got)
	}
	if got := agentfense(t, s, "apply", s.Name, "--dry-run"); strings.Count(got, "failed\tM") != 2 || strings.Count(got, "applied\tM") != 2 {
		t.Errorf("the dry run:\n%s", got)
	}
	if r := s.Agentfense("apply", s.Name); r.Code != 1 || !strings.Contains(r.Stderr, "you may not replace files in its directory, which belongs to another user") || strings.Count(r.Stdout, "applied\tM") != 2 {
		t.Errorf("apply: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if got := agentfense(t, s, "diff", s.Name, "--name-status"); got != "M\tclosed/mine\nM\tsticky/theirs\n" {
		t.Errorf("what stays: %q", got)
	}
	if s.Read("f") != "3\nnew\n" || s.Read("sticky/mine") != "2\nnew\n" || s.Read("closed/mine") != "1\n" || s.Read("sticky/theirs") != "4\n" {
		t.Error("the source does not hold what was applied, and that alone")
	}
}
