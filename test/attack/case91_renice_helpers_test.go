package attack_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// idle is SCHED_IDLE of linux/sched.h, idleIO the class IOPRIO_CLASS_IDLE of
// linux/ioprio.h.
const (
	idle       = 5
	idleIO     = 3 << 13
	ioprioUser = 3
)

func init() {
	set := func(which, who, nice int) probe { return func() error { return unix.Setpriority(which, who, nice) } }
	schedule := func(pid func() int) probe {
		return func() error {
			var parameter int32 // sched_priority, 0 for SCHED_IDLE
			return syscallError(unix.SYS_SCHED_SETSCHEDULER, uintptr(pid()), idle, uintptr(unsafe.Pointer(&parameter)))
		}
	}
	one := func() int { return 1 }
	probes["renice PID 1"] = set(unix.PRIO_PROCESS, 1, 19)
	probes["renice the leader"] = func() error { return unix.Setpriority(unix.PRIO_PROCESS, os.Getppid(), 19) }
	probes["renice the leader's group"] = func() error {
		group, err := unix.Getpgid(os.Getppid())
		if err != nil {
			return err
		}
		return unix.Setpriority(unix.PRIO_PGRP, group, 19)
	}
	probes["renice all of the user"] = set(unix.PRIO_USER, 0, 19)
	probes["renice all of the user, by number"] = set(unix.PRIO_USER, os.Getuid(), 19)
	probes["schedule PID 1 when idle"] = schedule(one)
	probes["schedule the leader when idle"] = schedule(os.Getppid)
	probes["schedule PID 1 by attributes"] = func() error {
		return unix.SchedSetAttr(1, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: idle}, 0)
	}
	ioprio := func(which, who func() int) probe {
		return func() error { return syscallError(unix.SYS_IOPRIO_SET, uintptr(which()), uintptr(who()), idleIO) }
	}
	number := func(n int) func() int { return func() int { return n } }
	probes["PID 1's I/O when idle"] = ioprio(one, one)
	probes["the leader's I/O when idle"] = ioprio(one, os.Getppid)
	probes["the user's I/O when idle"] = ioprio(number(ioprioUser), number(0))
	write := func(file, text string) probe {
		return func() error { return os.WriteFile(file, []byte(text), 0) }
	}
	probes["PID 1's autogroup"] = write("/proc/1/autogroup", "19")
	probes["the leader's autogroup"] = func() error {
		return os.WriteFile("/proc/"+strconv.Itoa(os.Getppid())+"/autogroup", []byte("19"), 0)
	}
	probes["PID 1's score"] = write("/proc/1/oom_score_adj", "1000")
	probes["the leader's score"] = func() error {
		return os.WriteFile("/proc/"+strconv.Itoa(os.Getppid())+"/oom_score_adj", []byte("1000"), 0)
	}
	probes["own nice"] = set(unix.PRIO_PROCESS, 0, 19)
	probes["own group's nice"] = set(unix.PRIO_PGRP, 0, 19)
	probes["own I/O when idle"] = ioprio(one, number(0))
}

// niceOf are the nice values in lines of proc_pid_stat(5).
func niceOf(stat string) []string {
	var nice []string
	for line := range strings.Lines(stat) {
		_, fields, _ := strings.Cut(line, ") ")
		nice = append(nice, strings.Fields(fields)[16]) // field 19, behind the name's
	}
	return nice
}

// A command cannot take the processor from PID 1 and the leaders, which run as
// the same user.
func TestOurHelpersKeepTheirPriority(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		wantAnswers(t, s, map[string]string{
			"renice PID 1": "EPERM", "renice the leader": "EPERM", "renice the leader's group": "EPERM",
			"renice all of the user": "EPERM", "renice all of the user, by number": "EPERM",
			"schedule PID 1 when idle": "EPERM", "schedule the leader when idle": "EPERM", "schedule PID 1 by attributes": "EPERM",
			"PID 1's I/O when idle": "EPERM", "the leader's I/O when idle": "EPERM", "the user's I/O when idle": "EPERM",
			"PID 1's autogroup": "EACCES ENOENT", "the leader's autogroup": "EACCES ENOENT",
			"PID 1's score": "EACCES", "the leader's score": "EACCES",
			"own nice": "done", "own group's nice": "done", "own I/O when idle": "done",
		})
		r := s.Run("nice -n 19 sh -c 'cat /proc/$$/stat'; cat /proc/1/stat /proc/$PPID/stat")
		wantCode(t, r, 0)
		ours, err := os.ReadFile("/proc/self/stat")
		if err != nil {
			t.Fatal(err)
		}
		got, want := niceOf(r.Stdout), []string{"19", niceOf(string(ours))[0], niceOf(string(ours))[0]}
		if !slices.Equal(got, want) {
			t.Errorf("the command, PID 1 and the leader have the nice values %v, want %v", got, want)
		}
	})
}
