package attack_test

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// An ordinary user without a cgroup: the limit is the sandbox's own.
func ordinaryLimit(t *testing.T) *harness.Sandbox {
	t.Helper()
	testenv.Root(t)
	if !guest.CanLimitProcesses() {
		t.Skip("needs Linux 5.14")
	}
	return harness.New(t, binary, nil, harness.Ordinary)
}

// A fork bomb stops at the limit and affects no other sandbox of the user, with or without
// a limit.
func TestForkBombWithoutCgroup(t *testing.T) {
	s := ordinaryLimit(t)
	for name, flags := range map[string][]string{"limited": {"--pids", "20"}, "free": nil} {
		wantCode(t, s.Agentfense(append([]string{"run", "--detach", "--name", name}, flags...)...), 0)
		t.Cleanup(func() { s.Agentfense("stop", name) })
	}
	// The bomb stays while the others are asked.
	r := s.Agentfense("run", "--detach", "--name", s.Name, "--preset", "full-access", "--pids", "40", "--", "sh", "-c",
		"exec 2>refused; while :; do sleep 1000 & done")
	wantCode(t, r, 0)
	testenv.Eventually(t, "the bomb is refused more processes", func() bool {
		return strings.Contains(s.Agentfense("files", "cat", s.Name, "refused").Stdout, "fork")
	})
	doc := inspect(t, s, s.Name)
	if n := len(processesOf(t, s, doc)); n > 40 {
		t.Errorf("%d processes under --pids 40", n)
	}
	if r := s.Agentfense("inspect", s.Name); !strings.Contains(r.Stdout, "rlimit") {
		t.Errorf("inspect does not say that the limit is an rlimit:\n%s", r.Stdout)
	}
	for _, other := range []string{"limited", "free"} {
		wantCode(t, s.Agentfense("exec", other, "--", "sh", "-c", "true & true & true & wait"), 0)
	}
	wantCode(t, s.Agentfense("stop", s.Name), 0)
	nothingLeft(t, s, doc)
	if started := events(t, s, s.Name, "sandbox_started"); len(started) != 1 || !contains(started[0]["enforced"], "rlimit") {
		t.Errorf("audit: %v, want rlimit enforced", started)
	}
}

// contains reports whether a list of a JSON document has text in it.
func contains(list any, text string) bool {
	items, _ := list.([]any)
	return slices.Contains(items, any(text))
}

// manyThreads needs more threads than the limit allows. Its runtime (Go's, C's)
// gives up then.
var manyThreads = program("many threads", func(in *inside, _ []string) {
	var all sync.WaitGroup
	all.Add(100)
	for range 100 {
		go func() {
			runtime.LockOSThread()
			all.Done()
			all.Wait()
		}()
	}
	all.Wait()
	in.fail("100 threads under --pids 40")
})

// raiseLimits tries to get rid of them.
var raiseLimits = program("raise the limits", func(in *inside, _ []string) {
	for name, resource := range map[string]int{"processes": unix.RLIMIT_NPROC, "files": unix.RLIMIT_NOFILE} {
		var limit unix.Rlimit
		in.works("read the limit of "+name, unix.Prlimit(0, resource, nil, &limit))
		if resource == unix.RLIMIT_NPROC {
			in.is("the soft limit is the hard one", limit.Cur, limit.Max)
		}
		in.errno("raise the limit of "+name, unix.Prlimit(0, resource, &unix.Rlimit{Cur: limit.Max + 1, Max: limit.Max + 1}, nil), unix.EPERM)
		for _, pid := range []int{1, os.Getppid()} { // neither that of our own helpers
			err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: limit.Max + 1, Max: limit.Max + 1}, nil)
			in.refused("raise that of a helper's "+name, err, unix.EPERM, unix.EACCES, unix.ESRCH)
		}
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	in.works("read the status", err)
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		in.is(set, strings.Contains(string(status), set+":\t0000000000000000\n"), true)
	}
	in.refused("make a user namespace", func() error {
		runtime.LockOSThread()
		return unix.Unshare(unix.CLONE_NEWUSER)
	}(), unix.EPERM, unix.ENOSPC)
})

func TestLimitsWithoutCgroupHold(t *testing.T) {
	s := ordinaryLimit(t)
	for _, attack := range []string{forkBomb, raiseLimits} {
		t.Run(attack, func(t *testing.T) { passes(t, s, attack, nil, "--pids", "40") })
	}
	r := s.RunProgram(manyThreads, nil, "--pids", "40")
	if r.Code == 0 || !strings.Contains(r.Stderr, "create new OS thread") && !strings.Contains(r.Stderr, "pthread_create") {
		t.Errorf("threads: exit code %d\n%s", r.Code, r.Stderr)
	}
}

// A lower limit of the caller stays in force.
func TestNarrowerLimitStays(t *testing.T) {
	s := ordinaryLimit(t)
	cmd := s.Command(t.Context(), "run", "--name", s.Name, "--pids", "5000", "--", "sh", "-c",
		"grep 'Max processes' /proc/self/limits")
	cmd.Args = append([]string{"/bin/sh", "-c", `prlimit --pid $$ --nproc=3000:3000 && exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	out, err := cmd.CombinedOutput()
	if fields := strings.Fields(string(out)); err != nil || len(fields) < 4 || fields[2] != "3000" || fields[3] != "3000" {
		t.Errorf("%v\n%s", err, out)
	}
}

// A program inside has a hard limit of 65,536 open files, and the soft limit of the process
// that started agentfense.
func TestOpenFilesAreBounded(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		var ours unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &ours); err != nil {
			t.Fatal(err)
		}
		passes(t, s, openMany, nil)
		r := s.Run("ulimit -Sn 100 && ulimit -Sn $(ulimit -Hn) && ulimit -Hn")
		if want := min(ours.Max, 1<<16); r.Code != 0 || strings.TrimSpace(r.Stdout) != strconv.FormatUint(want, 10) {
			t.Errorf("the hard limit is %q (exit code %d), want %d", r.Stdout, r.Code, want)
		}
	})
}

// openMany opens files until it may not.
var openMany = program("open many files", func(in *inside, _ []string) {
	var limit unix.Rlimit
	in.works("read the limit", unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	in.is("the hard limit is bounded", limit.Max <= 1<<16, true)
	n := uint64(0)
	var err error
	for ; n <= limit.Max && err == nil; n++ {
		_, err = unix.Open("/dev/null", unix.O_RDONLY, 0)
	}
	in.errno("the last open", err, unix.EMFILE)
})
