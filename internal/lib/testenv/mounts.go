package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// innerEnv marks the process that runs the tests in a mount namespace of its
// own.
const innerEnv = "AGENTFENSE_TEST_PRIVATE_MOUNTS"

// PrivateMounts runs the test program in a mount namespace of its own, so that
// no mount outlives it whatever happens, and ends this process with its exit
// code. It returns where the tests are to run: there, and for an ordinary user,
// who mounts in namespaces anyway.
func PrivateMounts() {
	if os.Getenv(innerEnv) != "" || os.Geteuid() != 0 {
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), innerEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
