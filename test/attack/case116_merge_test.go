package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A fork cannot reach more by a merge than by its own apply: what the policy of either sandbox
// refuses stays as it is, whatever the flag; links lead nowhere; names that mean something to a
// layer, to a terminal or to the host mean nothing; and the source stays as it is.
func TestAForkReachesNothingByAMerge(t *testing.T) {
	for name, options := range map[string][]harness.Option{"root": nil, "ordinary user": {harness.Ordinary}} {
		t.Run(name, func(t *testing.T) { attackMerge(t, options) })
	}
}

func attackMerge(t *testing.T, options []harness.Option) {
	s := harness.New(t, binary, map[string]string{
		"f": "source\n", "secret": "source\n", "conf": "source\n", "dir/x": "x\n", "dir/secret": "deep\n", "gone/x": "x\n", "gone/secret": "kept\n",
	}, options...)
	outside := filepath.Join(s.Home, "..", filepath.Base(s.Home)+"-outside")
	if err := os.MkdirAll(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(outside) })
	must := func(args ...string) harness.Result {
		t.Helper()
		r := s.Agentfense(args...)
		if r.Code != 0 {
			t.Fatalf("%q: %d, %s%s", args, r.Code, r.Stdout, r.Stderr)
		}
		return r
	}
	refused := func(want []string, args ...string) {
		t.Helper()
		r := s.Agentfense(args...)
		if r.Code != 1 {
			t.Fatalf("%q: %d, %s%s", args, r.Code, r.Stdout, r.Stderr)
		}
		for _, line := range want {
			if !strings.Contains(r.Stdout, line) {
				t.Errorf("%q does not name %q:\n%s", args, line, r.Stdout)
			}
		}
		if strings.ContainsAny(r.Stdout+r.Stderr, "\x1b\a") {
			t.Errorf("%q writes control characters: %q", args, r.Stdout+r.Stderr)
		}
	}
	s.Run("echo mine > mine; echo mine > dir/mine", "--preset", "full-access", "--hide", "**/secret", "--read", "conf")
	must("create", "wide", "--preset", "full-access")
	must("create", "whole", "--preset", "full-access")
	must("fork", s.Name, "fork")
	const flags = "--ours --theirs --markers"

	// A sandbox with more rights brings nothing to where the other one has none.
	must("exec", "wide", "--", "sh", "-c", "for p in secret conf dir/secret; do echo wide > $p; done; rm -r gone; echo free > free")
	for flag := range strings.FieldsSeq(flags + " --dry-run") {
		want := []string{"hidden\tsecret\t", "hidden\tdir/secret\t", "refused\tconf\t"}
		refused(want, "merge", "wide", "--into", s.Name, flag)
	}
	if r := must("exec", s.Name, "--", "sh", "-c", "cat conf; ls; ls gone"); strings.Contains(r.Stdout, "wide") || strings.Contains(r.Stdout, "free") || !strings.Contains(r.Stdout, "x") {
		t.Errorf("after refused merges the sandbox shows %q", r.Stdout)
	}

	// A fork that removes directories takes nothing along that it does not see, and its own entries
	// under hidden names stay its own.
	must("exec", "fork", "--", "sh", "-c", "echo own > secret; rm -r gone; echo file > gone")
	refused([]string{"hidden_below\tgone\t"}, "merge", "fork", "--into", "whole", "gone", "--theirs")
	must("merge", "fork", "--into", "whole", "--ours")
	if r := must("exec", "whole", "--", "cat", "secret", "gone/secret"); r.Stdout != "source\nkept\n" {
		t.Errorf("an own entry of the fork became %q", r.Stdout)
	}

	// A directory that became a link is not followed, and no name has a meaning.
	hostile := `rm -f dir/x dir/mine; rmdir dir; ln -s "$1" dir; ln -s "$1"/planted link; ln -s /proc/self/root root
		mkdir .wh.f .wh..wh..opq; echo x > .wh.mine; echo x > .wh..wh..orph; mkfifo fifo
		touch "$(printf 'esc\033]0;x\a')" "$(printf 'byte\377\nline')" "$(printf '%0255d' 0)"
		echo closed > closed; chmod 0 closed; mkdir -m 0 shut; echo s > suid; chmod 6755 suid; truncate -s 1T hole; ln f f2`
	must("exec", "fork", "--", "sh", "-c", hostile, "sh", outside)
	must("exec", s.Name, "--", "sh", "-c", "echo changed > dir/mine")
	refused([]string{"dir"}, "merge", "fork", "--into", s.Name)
	r := must("merge", "fork", "--into", s.Name, "--ours")
	if strings.ContainsAny(r.Stdout+r.Stderr, "\x1b\a") {
		t.Errorf("merge writes control characters: %q", r.Stdout+r.Stderr)
	}
	show := `cat f mine dir/mine; readlink link; stat -c '%a %s' suid hole closed shut; ls -a | grep -c '^.wh'; test -p fifo`
	want := "source\nmine\nchanged\n" + outside + "/planted\n755 2\n644 1099511627776\n0 7\n0 "
	if r := must("exec", s.Name, "--", "sh", "-c", show); !strings.HasPrefix(r.Stdout, want) || !strings.HasSuffix(r.Stdout, "\n4\n") {
		t.Errorf("the sandbox shows %q, want %q…", r.Stdout, want)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside has %v, %v", left, err)
	}
	for name, want := range map[string]string{"f": "source\n", "secret": "source\n", "conf": "source\n", "dir/x": "x\n", "dir/secret": "deep\n", "gone/secret": "kept\n"} {
		if got := s.Read(name); got != want {
			t.Errorf("the source has %q at %s", got, name)
		}
	}
	must("restore", s.Name, "@{1}")
	if r := must("exec", s.Name, "--", "sh", "-c", "ls -a | grep -c wh; cat dir/x"); r.Stdout != "0\nx\n" {
		t.Errorf("restored it shows %q", r.Stdout)
	}
}
