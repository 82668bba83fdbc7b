package launch

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// OwnerVerb is the hidden first word of a command line that runs as RunAsOwner
// says.
const OwnerVerb = "__owner"

// ownerCaps let an ordinary user get at files of the delta that the user owns
// and a program inside has closed to everybody.
var ownerCaps = []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER}

// RunAsOwner runs this program's verb again with args, as a child with our
// streams in a user namespace where an ordinary user's files are open to the
// user whatever their modes say, as they are to the supervisor. It returns the
// child's exit code, 128+n after signal n, which the child has explained.
// Errors: Unsupported, with the fix, where the host refuses the namespace.
func RunAsOwner(ctx context.Context, args []string) (int, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{OwnerVerb}, args...)...)
	cmd.Args[0] = "agentfense"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	ownUserNamespace(cmd.SysProcAttr, ownerCaps)
	// Pdeathsig comes when the starting thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, explainStart(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its state tells
	}()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended
		case <-ended:
			return exitCodeOf(cmd.ProcessState), nil
		}
	}
}

func exitCodeOf(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}
