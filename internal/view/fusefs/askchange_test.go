package fusefs_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// changes are scripts that change names or attributes where the policy does not permit it, and the
// paths that they need.
var changes = []struct{ name, script, asks string }{
	{"a new file", "echo new >new; cat new", "create /new"},
	{"a new file by its whole path", `echo new >"$PWD/d/new"; cat d/new`, "create /d/new"},
	{"a new directory", "mkdir made; ls -d made", "mkdir /made"},
	{"a FIFO", "mkfifo pipe; ls pipe", "mknod /pipe"},
	{"a link", "ln -s read link; readlink link", "symlink /link"},
	{"a removal", "rm -f d/x; ls d", "unlink /d/x"},
	{"a removal of a directory", "rmdir empty; ls -d empty", "rmdir /empty"},
	{"a move", "mv read moved; cat moved", "rename /read, rename /moved"},
	{"a move to where it may be written", "mv read w/read; cat w/read", "rename /read"},
	{"a replacement", "mv w/f read; cat read", "rename /read"},
	{"a mode", "chmod 500 read; stat -c %a read", "setattr /read"},
	{"a time", "touch -d 2020-01-01 -c d/x; stat -c %Y d/x", "setattr /d/x"},
	{"in a directory in which something may be written", "rm -f mixed/keep; echo >mixed/new; ls mixed", "unlink /mixed/keep, create /mixed/new"},
}

// changingView shows a tree in which little can be changed.
func changingView(t *testing.T) (*view, *asker) {
	t.Helper()
	source := t.TempDir()
	tree{"read": "r", "w/f": "w", "d/x": "x", "empty/": "", "mixed/keep": "k", "mixed/a.log": "l", "none": "n"}.make(t, source)
	a := &asker{answer: always(fusefs.Refuse)}
	v := mountSource(t, source, func(o *fusefs.Options) { o.Ask = a.ask }, "**=read", "/w/**=write", "/mixed/*.log=write", "/none=none")
	return v, a
}

func asked(a *asker) string {
	var all []string
	for _, q := range a.questions() {
		all = append(all, q.Operation+" "+q.Path.String())
	}
	return strings.Join(all, ", ")
}

// TestChangesThatAreRefusedAreAsked: allowed once they do what they do where everything may be
// written, refused they fail as ever, and a program sees no other error.
func TestChangesThatAreRefusedAreAsked(t *testing.T) {
	free := mount(t, tree{}, "**=write")
	for _, tt := range changes {
		t.Run(tt.name, func(t *testing.T) {
			v, a := changingView(t)
			refused := v.guest(tt.script)
			if got := asked(a); !strings.HasPrefix(tt.asks, got) || got == "" || !strings.Contains(refused, "Permission denied") || strings.Contains(refused, "Stale") {
				t.Errorf("refused: asked %q, want %q\n%s", got, tt.asks, refused)
			}
			a.set(always(fusefs.AllowOnce))
			v, a = changingView(t)
			a.set(always(fusefs.AllowOnce))
			got := v.guest(tt.script)
			for _, q := range a.questions() {
				if q.Need != policy.Write || q.Permission != policy.Read || q.Program == "" || q.Rule == policy.NoRule {
					t.Errorf("asked %+v", q)
				}
			}
			if asks := asked(a); asks != tt.asks || strings.Contains(got, "denied") {
				t.Errorf("asked %q, want %q\n%s", asks, tt.asks, got)
			}
			if want := free.guest("rm -rf ./* && mkdir w d empty mixed && echo -n r >read && echo -n w >w/f && echo -n x >d/x && echo -n k >mixed/keep && echo -n l >mixed/a.log\n" + tt.script); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestAChangeIsAllowedForItsPathAlone: once, by whatever program, and nothing beside it.
func TestAChangeIsAllowedForItsPathAlone(t *testing.T) {
	v, a := changingView(t)
	a.set(func(q fusefs.Question, _ <-chan struct{}) fusefs.Verdict {
		if q.Path == "/new" && len(a.questions()) == 1 {
			return fusefs.AllowOnce
		}
		return fusefs.Refuse
	})
	got := v.guest("exec 3>new; (echo x >beside) 2>&1; echo more >&3; cat new; sleep 1.1; (rm -f new; echo x >>new; ln new w/new; mv w/f new) 2>&1")
	if strings.Count(got, "denied") != 5 || !strings.Contains(got, "more") {
		t.Errorf("%s", got)
	}
	if got := asked(a); got != "create /new, create /beside, unlink /new, open /new, rename /new" {
		t.Errorf("asked %q", got)
	}
	v.denied("/beside", "create")
}

// TestAnAnswerIsForOneOperation: who was asked about a mode has not permitted another content.
func TestAnAnswerIsForOneOperation(t *testing.T) {
	v, a := changingView(t)
	a.set(func(q fusefs.Question, _ <-chan struct{}) fusefs.Verdict {
		if q.Operation == "setattr" {
			return fusefs.AllowOnce
		}
		return fusefs.Refuse
	})
	got := v.guest("chmod 500 read && (mv w/f read; rm -f read; mv read gone; echo x >read) 2>&1; stat -c %a read; cat read")
	if strings.Count(got, "denied") != 4 || !strings.Contains(got, "500\nr") {
		t.Errorf("%s", got)
	}
}

// TestWhatIsLockedIsNotAsked: no answer permits what another sandbox's lock refuses.
func TestWhatIsLockedIsNotAsked(t *testing.T) {
	v, a := changingView(t)
	a.set(always(fusefs.AllowOnce))
	v.SetPolicy(compile(t, "**=read", "/w/**=write").WithLocks([]policy.Lock{{Path: "/w", Reason: "locked"}}))
	got := v.guest("(rm -f w/f; echo x >w/new; mkdir w/dir; mv read w/read; chmod 500 w/f; ln -s x w/link) 2>&1; ls w; cat w/f")
	if strings.Count(got, "denied") != 6 || !strings.HasSuffix(got, "f\nw") {
		t.Errorf("%s", got)
	}
	if got := asked(a); got != "" {
		t.Errorf("asked %q", got)
	}
}

func TestAnAnswerToAChangeMayChangeThePolicy(t *testing.T) {
	v, a := changingView(t)
	a.set(func(fusefs.Question, <-chan struct{}) fusefs.Verdict {
		v.SetPolicy(compile(t, "**=read", "/w/**=write", "/made=write", "/none=none"))
		return fusefs.Reconsider
	})
	if got := v.guest("mkdir made && ls -d made && rmdir made && mkdir made && stat -c %A . && touch beside"); !strings.HasPrefix(got, "made\ndrwxr-xr-x\n") || !strings.Contains(got, "denied") {
		t.Errorf("got %q", got)
	}
	if got := asked(a); !strings.HasPrefix(got, "mkdir /made, create /beside") {
		t.Errorf("asked %q", got)
	}
}

// TestChangesThatWaitHoldUpNothing: not even in their directory, which the kernel would have
// locked, and not the notifications of a changed policy.
func TestChangesThatWaitHoldUpNothing(t *testing.T) {
	v, a := changingView(t)
	var waiting atomic.Int32
	release := make(chan struct{})
	a.set(func(fusefs.Question, <-chan struct{}) fusefs.Verdict {
		waiting.Add(1)
		<-release
		return fusefs.AllowOnce
	})
	var all sync.WaitGroup
	scripts := []string{"mkdir made", "rm -f d/x", "mv read moved", "echo >mixed/new", "chmod 600 mixed/keep", "echo >new"}
	for _, s := range scripts {
		all.Go(func() {
			if got := v.guest(s); got != "" {
				t.Errorf("%s: %s", s, got)
			}
		})
	}
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	testenv.Eventually(t, "questions", func() bool { return waiting.Load() == int32(len(scripts)) })
	if got := v.guest("ls -d absent d/absent mixed/absent 2>/dev/null; echo x >mixed/b.log; mv mixed/b.log mixed/c.log; mv mixed/c.log w/c; rm w/c; ls; ls mixed; stat -c %A ."); !strings.HasSuffix(got, "a.log\nkeep\ndrwxr-xr-x") {
		t.Errorf("others: %q", got)
	}
	v.SetPolicy(compile(t, "**=read", "/w/**=write", "/mixed/*.log=write", "/none=none", "/empty=none", "/mixed/a.log=none"))
	free()
	all.Wait()
}

// TestManyAskInOneDirectory: what one of them makes the kernel know of the directory does not take
// the question of another one away.
func TestManyAskInOneDirectory(t *testing.T) {
	v, a := changingView(t)
	a.set(always(fusefs.AllowOnce))
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			script := fmt.Sprintf("for i in 1 2 3 4 5 6; do echo >mixed/%[1]d.$i; ls -l mixed >/dev/null 2>&1; mkdir d/%[1]d.$i; rm mixed/%[1]d.$i; done", i)
			if got := v.guest(script); got != "" {
				t.Errorf("%s", got)
			}
		})
	}
	all.Wait()
	if n := len(a.questions()); n < 72 {
		t.Errorf("asked %d times: %s", n, asked(a))
	}
}

func TestAChangeThatIsKilledWithdraws(t *testing.T) {
	v, a := changingView(t)
	pids, withdrew := make(chan int, 1), make(chan struct{}, 1)
	a.set(func(q fusefs.Question, withdrawn <-chan struct{}) fusefs.Verdict {
		pids <- q.PID
		<-withdrawn
		withdrew <- struct{}{}
		return fusefs.Withdrawn
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		v.guest("exec mkdir made")
	}()
	if err := unix.Kill(<-pids, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-withdrew
	<-done
	a.set(always(fusefs.Refuse))
	if got := v.guest("mkdir made; ls"); !strings.Contains(got, "denied") {
		t.Errorf("%s", got)
	}
}

// TestCallsThatAreNotRepeatedAreRefused: the kernel would hand ESTALE to the program.
func TestCallsThatAreNotRepeatedAreRefused(t *testing.T) {
	v, a := changingView(t)
	a.set(always(fusefs.AllowOnce))
	got := v.guest(`python3 - <<'END'
import os, socket
def attempt(do):
    try:
        do()
    except OSError as e:
        print(e.strerror)
attempt(lambda: socket.socket(socket.AF_UNIX).bind("sock"))
attempt(lambda: os.link("w/f", "linked"))
fd = os.open("read", os.O_RDONLY)
attempt(lambda: os.fchmod(fd, 0o600))
attempt(lambda: os.utime(fd))
END`)
	if want := strings.TrimSuffix(strings.Repeat("Permission denied\n", 4), "\n"); got != want || len(a.questions()) > 0 {
		t.Errorf("got %q; asked %s", got, asked(a))
	}
}

// TestRacesGetNoMore: while another thread exchanges what a path leads to, only the paths of which
// the view asked are changed.
func TestRacesGetNoMore(t *testing.T) {
	v, a := changingView(t)
	a.set(func(q fusefs.Question, _ <-chan struct{}) fusefs.Verdict {
		if strings.HasPrefix(string(q.Path), "/d/") {
			return fusefs.AllowOnce
		}
		return fusefs.Refuse
	})
	v.guest(`mkdir w/a; ln -s ../d w/link
(i=0; while [ $i -lt 150 ]; do ln -sfn ../d w/link; ln -sfn ../mixed w/link; ln -sfn ../empty w/link; i=$((i+1)); done) &
i=0; while [ $i -lt 150 ]; do echo x >w/link/f$i; rm -f w/link/keep; i=$((i+1)); done 2>/dev/null; wait`)
	if got := v.guest("ls mixed empty"); got != "empty:\n\nmixed:\na.log\nkeep" {
		t.Errorf("%s\nasked %s", got, asked(a))
	}
	if !slices.ContainsFunc(a.questions(), func(q fusefs.Question) bool { return strings.HasPrefix(string(q.Path), "/d/") }) {
		t.Error("nothing was asked")
	}
}

// TestAShutDirectoryStaysShut: it shows as writable, so that the requests come. What the mode bits
// keep from being changed otherwise stays as it is.
func TestAShutDirectoryStaysShut(t *testing.T) {
	source := t.TempDir()
	ownTree().make(t, source)
	a := &asker{answer: always(fusefs.AllowOnce)}
	v := mountSource(t, source, func(o *fusefs.Options) { o.Policy, o.Ask = ownRules(t), a.ask })
	v.write("d/own.pem", "own")
	v.SetPolicy(ownRules(t, policy.Rule{Pattern: "/d/", Permission: policy.Read, Priority: 60}))
	got := v.guest("rm -f d/own.pem; mv d/own.pem d/other.pem; mkdir d/new.pem; echo x >d/made.pem; ls d")
	if strings.Count(got, "denied") != 4 || !strings.HasSuffix(got, "\nb\nown.pem") || len(a.questions()) > 0 {
		t.Errorf("got %q; asked %s", got, asked(a))
	}
}
