package attack_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

func init() {
	probes["limit oneself"] = func() error {
		return unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 32, Max: 64}, nil)
	}
	pids := map[string]func() int{
		"PID 1":      func() int { return 1 },
		"the leader": os.Getppid,
	}
	for who, pid := range pids {
		open := func(file string, flags int) probe {
			return func() error {
				_, err := unix.Open("/proc/"+itoa(pid())+"/"+file, flags, 0)
				return err
			}
		}
		probes["attach to "+who] = func() error { return unix.PtraceAttach(pid()) }
		probes["seize "+who] = func() error { return unix.PtraceSeize(pid()) }
		probes["write the memory of "+who] = open("mem", unix.O_RDWR)
		probes["read the maps of "+who] = open("maps", unix.O_RDONLY)
		probes["read the environment of "+who] = open("environ", unix.O_RDONLY)
		probes["take the socket of "+who] = open("fd/3", unix.O_RDWR)
		probes["see where descriptors of "+who+" lead"] = func() error {
			// Root inside may list the numbers, the owner of an undumpable
			// process's /proc being root. That is all there is to see.
			for fd := range 16 {
				path := "/proc/" + itoa(pid()) + "/fd/" + itoa(fd)
				if target, err := os.Readlink(path); err == nil {
					return fmt.Errorf("%s leads to %s", path, target)
				}
				if _, err := os.Stat(path); err == nil {
					return fmt.Errorf("%s can be followed", path)
				}
				if info, err := os.ReadFile("/proc/" + itoa(pid()) + "/fdinfo/" + itoa(fd)); err == nil {
					return fmt.Errorf("%s is described: %s", path, info)
				}
			}
			return unix.EACCES
		}
		probes["enter the root of "+who] = open("root/", unix.O_RDONLY)
		probes["process_vm_writev into "+who] = func() error {
			var b byte
			local := []unix.Iovec{{Base: &b, Len: 1}}
			_, err := unix.ProcessVMWritev(pid(), local, []unix.RemoteIovec{{Base: 0x10000, Len: 1}}, 0)
			return err
		}
		probes["pidfd_getfd from "+who] = func() error {
			fd, err := unix.PidfdOpen(pid(), 0)
			if err != nil {
				return err
			}
			_, err = unix.PidfdGetfd(fd, 3, 0)
			return err
		}
		probes["limit "+who] = func() error {
			return unix.Prlimit(pid(), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: 3}, nil)
		}
		probes["kcmp with "+who] = func() error {
			return syscallError(unix.SYS_KCMP, uintptr(pid()), uintptr(os.Getpid()), 0, 0, 0)
		}
	}
}

// agentfense's helpers inside run as the same user as the command, but the command cannot
// access them, whatever Yama's setting.
func TestHelpersCannotBeTraced(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		want := map[string]string{}
		for _, of := range []string{"PID 1", "the leader"} {
			for _, attempt := range []string{"attach to ", "seize ", "process_vm_writev into ", "pidfd_getfd from ", "kcmp with ", "limit "} {
				want[attempt+of] = "EPERM"
			}
			for _, attempt := range []string{
				"write the memory of ", "read the maps of ", "read the environment of ",
				"take the socket of ", "enter the root of ",
			} {
				want[attempt+of] = "EACCES"
			}
		}
		want["limit oneself"] = "done"
		for _, of := range []string{"PID 1", "the leader"} {
			want["see where descriptors of "+of+" lead"] = "EACCES"
		}
		wantAnswers(t, s, want)
		// The sandbox has not noticed.
		prints(t, s, "echo alive", "alive\n")
	})
}
