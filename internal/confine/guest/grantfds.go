package guest

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// FDLease is three pipes in the hands of a process inside, the holder, which does
// nothing but have them: any process of the sandbox can open them by its number.
type FDLease struct {
	PID int // of the holder, as processes inside count
	// Started is when it was started, in clock ticks after the system's start
	// modulo 2³² (proc_pid_stat(5)).
	Started uint32
}

// GrantFDs brings pipes in for a command that runs already, a shell, which can open
// them as descriptors 0, 1 and 2 of the loan's holder. The files stay the
// caller's. There is one loan of an exec at a time.
//
// Errors: Invalid for a stream that is no pipe; Exhausted, where the sandbox
// has no process left; Unavailable, where the exec has ended; Internal.
func (x *Exec) GrantFDs(files [3]*os.File) (FDLease, error) {
	for _, f := range files {
		if err := CheckPipe(f); err != nil {
			return FDLease{}, err
		}
	}
	if err := handOver(files, x.hello); err != nil {
		return FDLease{}, err
	}
	a, err := x.ask("lend", encode(msgLend), files[:]...)
	return FDLease{PID: int(a.first), Started: a.second}, err
}

// RevokeFDs ends the loan. When it returns the holder has closed the pipes.
func (x *Exec) RevokeFDs() error {
	_, err := x.ask("reclaim", encode(msgReclaim))
	return err
}

// Interrupt sends own to the command itself, unless it is 0, and others to
// those of its descendants that were started since the last loan was made and
// descend from none that is older; who of these ignores it is killed. It
// returns how many they were.
func (x *Exec) Interrupt(own, others unix.Signal) (int, error) {
	a, err := x.ask("interrupt", encode(msgInterrupt, uint32(own), uint32(others)))
	return int(a.first), err
}

// ask has the leader do something and waits until it is done.
func (x *Exec) ask(what string, message []byte, files ...*os.File) (answer, error) {
	x.asking.Lock()
	defer x.asking.Unlock()
	if err := x.tell(message, files...); err != nil {
		return answer{}, errdefs.New(errdefs.Unavailable, "%s: leader does not listen: %w", what, err)
	}
	timeout := time.NewTimer(sendTimeout)
	defer timeout.Stop()
	select {
	case a := <-x.answers:
		if a.errno != 0 {
			return answer{}, startFault(what, a.errno)
		}
		return a, nil
	case <-x.done:
		return answer{}, errdefs.New(errdefs.Unavailable, "%s: the exec has ended", what)
	case <-timeout.C:
		x.Kill()
		return answer{}, errdefs.New(errdefs.Internal, "%s: the leader does not answer", what)
	}
}

// answered takes a leader's answer to what it was asked. It is false for any
// other message, and for an answer that nobody can be waiting for.
func (x *Exec) answered(message []byte) bool {
	a, err := decodeAnswer(message)
	if err != nil {
		return false
	}
	select {
	case x.answers <- a:
		return true
	default:
		return false
	}
}
