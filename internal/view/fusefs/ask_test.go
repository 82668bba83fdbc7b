package fusefs_test

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// asker answers the questions of a view.
type asker struct {
	mu     sync.Mutex
	asked  []fusefs.Question
	answer func(q fusefs.Question, withdrawn <-chan struct{}) fusefs.Verdict
}

func (a *asker) set(answer func(fusefs.Question, <-chan struct{}) fusefs.Verdict) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked, a.answer = nil, answer
}

func (a *asker) ask(q fusefs.Question, withdrawn <-chan struct{}) fusefs.Verdict {
	a.mu.Lock()
	a.asked = append(a.asked, q)
	answer := a.answer
	a.mu.Unlock()
	return answer(q, withdrawn)
}

func (a *asker) questions() []fusefs.Question {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]fusefs.Question(nil), a.asked...)
}

func always(v fusefs.Verdict) func(fusefs.Question, <-chan struct{}) fusefs.Verdict {
	return func(fusefs.Question, <-chan struct{}) fusefs.Verdict { return v }
}

// askingView shows a tree that has a file of each kind of refusal.
func askingView(t *testing.T) (*view, *asker) {
	t.Helper()
	source := t.TempDir()
	tree{"view": "v", "read": "r", "prog": "#!/bin/sh\necho ran\n", "none": "n", "w/f": "w", "d/x": "x", ".agentfense.yaml": "version: 1\n"}.make(t, source)
	if err := os.Chmod(source+"/prog", 0o755); err != nil {
		t.Fatal(err)
	}
	a := &asker{answer: always(fusefs.Refuse)}
	v := mountSource(t, source, func(o *fusefs.Options) { o.Ask = a.ask }, "**=read", "/w/**=write", "/view=view", "/prog=view", "/none=none")
	return v, a
}

func TestOpensThatAreRefusedAreAsked(t *testing.T) {
	v, a := askingView(t)
	for _, tt := range []struct {
		name, script, want string
		operation          string
		need               policy.Permission
	}{
		{"a view file is read", "cat view", "v", "open", policy.Read},
		{"a read file is written to", "echo more >>read && cat read", "rmore", "open", policy.Write},
		{"a view file is executed", "./prog", "ran", "execve", policy.Read},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a.set(always(fusefs.AllowOnce))
			if got := v.guest(tt.script); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			asked := a.questions()
			if len(asked) == 0 || asked[0].Operation != tt.operation || asked[0].Need != tt.need || asked[0].Program == "" || asked[0].Rule == policy.NoRule {
				t.Errorf("asked %+v", asked)
			}
		})
	}
}

func TestWhatIsNotAsked(t *testing.T) {
	v, a := askingView(t)
	a.set(always(fusefs.AllowOnce))
	got := v.guest("cat none; cat absent; ls -l >/dev/null; stat view >/dev/null; test -r view; test -w read; rm -f none; mkdir w w/d; mv d w/e; ln read w/l; rm -f .agentfense.yaml; mv w/f none; mv read none; mkdir none; echo x >>.agentfense.yaml; stat --cached=never view >/dev/null; python3 -c 'import os; os.chmod(os.open(\"read\", os.O_RDONLY), 0o600)'")
	if asked := a.questions(); len(asked) > 0 {
		t.Errorf("asked %+v\n%s", asked, got)
	}
}

func TestARefusalStaysOne(t *testing.T) {
	v, a := askingView(t)
	if got := v.guest("cat view"); !strings.Contains(got, "Permission denied") {
		t.Errorf("cat: %s", got)
	}
	if asked := a.questions(); len(asked) != 1 {
		t.Errorf("asked %d times, want once", len(asked))
	}
	v.denied("/view", "open")
}

// TestWhatWasAllowedOnceIsAskedAgain: what was opened stays usable, a later open is another
// question, and no name makes the answer last.
func TestWhatWasAllowedOnceIsAskedAgain(t *testing.T) {
	v, a := askingView(t)
	a.set(func(q fusefs.Question, _ <-chan struct{}) fusefs.Verdict {
		if len(a.questions()) == 1 {
			return fusefs.AllowOnce
		}
		return fusefs.Refuse
	})
	got := v.guest("exec 3<>read; ln read w/mine 2>/dev/null || echo no name; sleep 1.1; cat <&3; echo more >&3; cat read; (echo late >>read) 2>&1")
	if want := "no name\nrrmore\n"; !strings.HasPrefix(got, want) || !strings.Contains(got, "Permission denied") {
		t.Errorf("got %q, want %q and a refusal", got, want)
	}
	if asked := a.questions(); len(asked) != 2 {
		t.Errorf("asked %d times, want twice", len(asked))
	}
	// A stricter policy takes the descriptors, too.
	a.set(always(fusefs.AllowOnce))
	fd := v.openAsGuest("view")
	v.SetPolicy(compile(t, "**=view"))
	v.SetPolicy(compile(t, "**=none"))
	if _, err := unix.Pread(fd, make([]byte, 1), 0); err == nil {
		t.Error("a descriptor that was opened once reads under a policy that hides the file")
	}
}

// openAsGuest opens a file as the confined process does.
func (v *view) openAsGuest(name string) int {
	v.t.Helper()
	opened := make(chan int)
	go func() { // the thread ends with the goroutine
		runtime.LockOSThread()
		if err := setUID(guestUID); err != nil {
			v.t.Error(err)
		}
		fd, err := unix.Open(v.path(name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			v.t.Error(err)
		}
		opened <- fd
	}()
	fd := <-opened
	v.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestAnAnswerMayChangeThePolicy(t *testing.T) {
	v, a := askingView(t)
	a.set(func(fusefs.Question, <-chan struct{}) fusefs.Verdict {
		v.SetPolicy(compile(t, "**=read", "/w/**=write", "/view=read", "/none=none"))
		return fusefs.Reconsider
	})
	if got := v.guest("cat view; sleep 0.1; cat view"); got != "vv" {
		t.Errorf("got %q", got)
	}
	if asked := a.questions(); len(asked) != 1 {
		t.Errorf("asked %d times, want once", len(asked))
	}
}

// TestQuestionsHoldUpNothingElse: while many wait, others read, write and change names, and the
// policy can change.
func TestQuestionsHoldUpNothingElse(t *testing.T) {
	v, a := askingView(t)
	var waiting atomic.Int32
	release := make(chan struct{})
	a.set(func(fusefs.Question, <-chan struct{}) fusefs.Verdict {
		waiting.Add(1)
		<-release
		return fusefs.AllowOnce
	})
	const many = 20
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if got := v.guest("cat view"); got != "v" {
				t.Errorf("cat: %s", got)
			}
		})
	}
	testenv.Eventually(t, "20 questions", func() bool { return waiting.Load() == many })
	if got := v.guest("cat read w/f; echo x >w/new; mv w/new w/newer; ls w; rm w/newer; mkdir w/d; mv w/d w/e; ls -l view >/dev/null"); got != "rwf\nnewer" {
		t.Errorf("others: %q", got)
	}
	v.SetPolicy(compile(t, "**=read", "/w/**=write", "/view=view", "/none=none", "/other=none"))
	close(release)
	all.Wait()
}

// TestACallerThatIsKilledWithdraws: and one that only gets a signal that it catches goes on to
// wait.
func TestACallerThatIsKilledWithdraws(t *testing.T) {
	v, a := askingView(t)
	for _, tt := range []struct {
		name, script string
		signal       syscall.Signal
		withdraws    bool
	}{
		{"killed", "exec cat view", syscall.SIGKILL, true},
		{"ended", "exec cat view", syscall.SIGTERM, true},
		{"interrupted, and it catches that", "trap : INT; read x <view", syscall.SIGINT, true},
		{"told of something", "trap : USR1; read x <view", syscall.SIGUSR1, false},
		{"with a dump", "exec cat view", syscall.SIGQUIT, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pids, release, withdrew := make(chan int, 1), make(chan struct{}), make(chan struct{}, 1)
			a.set(func(q fusefs.Question, withdrawn <-chan struct{}) fusefs.Verdict {
				pids <- q.PID
				select {
				case <-withdrawn:
					withdrew <- struct{}{}
					return fusefs.Withdrawn
				case <-release:
					return fusefs.Refuse
				}
			})
			done := make(chan struct{})
			go func() {
				defer close(done)
				v.guest("ulimit -c 0; " + tt.script)
			}()
			pid := <-pids
			if err := unix.Kill(pid, tt.signal); err != nil {
				t.Fatal(err)
			}
			if tt.withdraws {
				<-withdrew
			} else {
				select {
				case <-withdrew:
					t.Error("it withdrew")
				case <-time.After(300 * time.Millisecond):
				}
				close(release)
			}
			<-done
		})
	}
}

// TestWithoutAskNothingWaits: the refusal comes with the same requests as ever.
func TestWithoutAskNothingWaits(t *testing.T) {
	v := mount(t, tree{"view": "1"}, "**=view")
	v.guest("cat view")
	got := v.requests(func() { v.guest("cat view") })
	if got["getattr"] > 1 {
		t.Errorf("requests: %v", got)
	}
}

// setUID changes the user of this thread alone.
func setUID(uid int) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return errno
	}
	return nil
}
