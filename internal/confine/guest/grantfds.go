package guest

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// FDLease is three pipes that a process inside, the holder, has open. The holder does
// nothing else. Any process of the sandbox can open the pipes through /proc/PID/fd of the
// holder.
type FDLease struct {
	PID int // of the holder, in the sandbox's pid namespace
	// Started is the holder's start time, in clock ticks after the system's start modulo
	// 2³² (proc_pid_stat(5)).
	Started uint32
}

// GrantFDs passes pipes to a command that already runs, a shell, which can open them as
// descriptors 0, 1 and 2 of the lease's holder. The caller closes the files. An exec has
// one lease at a time.
//
// Errors: Invalid for a stream that is not a pipe; Exhausted, if the sandbox is at its
// limit of processes; Unavailable, if the exec has ended; Internal.
func (x *Exec) GrantFDs(files [3]*os.File) (FDLease, error) {
	for _, f := range files {
		if err := CheckPipe(f); err != nil {
			return FDLease{}, err
		}
	}
	if err := chownPipes(files, x.hello); err != nil {
		return FDLease{}, err
	}
	a, err := x.ask("grant pipes", encode(msgGrant), files[:]...)
	return FDLease{PID: int(a.first), Started: a.second}, err
}

// RevokeFDs ends the lease. When it returns the holder has closed the pipes.
func (x *Exec) RevokeFDs() error {
	_, err := x.ask("reclaim", encode(msgRevoke))
	return err
}

// Interrupt sends own to the command itself, unless it is 0. It sends others to each
// descendant that was started after the last lease, as were all its ancestors below the
// command. A descendant that ignores the signal is killed. Interrupt returns the number of
// these descendants.
func (x *Exec) Interrupt(own, others unix.Signal) (int, error) {
	a, err := x.ask("interrupt", encode(msgInterrupt, uint32(own), uint32(others)))
	return int(a.first), err
}

// ask sends the leader a request and waits for its answer.
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
			return answer{}, startError(what, a.errno)
		}
		return a, nil
	case <-x.done:
		return answer{}, errdefs.New(errdefs.Unavailable, "%s: the exec has ended", what)
	case <-timeout.C:
		x.Kill()
		return answer{}, errdefs.New(errdefs.Internal, "%s: the leader does not answer", what)
	}
}

// answered handles the leader's answer to a request. It returns false for any other
// message, and for an answer without a request.
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
