package bwrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pidfd"
)

// Bubblewrap's child waits for its parent on an eventfd. That has no end of file:
// a parent that is killed before it lets its child go leaves it for good, in no
// group, bound to nobody. Each bubblewrap has the name of its sandbox in its
// environment, which its child has, too, until it becomes PID 1, so that what was
// left can be found.
const markVariable = "AGENTFENSE_SANDBOX_ID"

func markOf(id string) string { return markVariable + "=" + id }

// leftPause is how long EndLeft waits for what it has killed before it looks again.
const leftPause = time.Millisecond

// EndLeft kills the processes that a start of the sandbox id has left when it, or
// who started it, was killed. Root's sandboxes have a host uid of their own: with
// it all that has that uid is meant. It returns when none is there any more.
// Errors: Unavailable, when ctx ends before; Internal.
func EndLeft(ctx context.Context, id string, uid uint32) error {
	for {
		n, err := killLeft(ctx, id, uid)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return errdefs.New(errdefs.Unavailable, "end what a killed start has left: %d processes do not end", n)
		case <-time.After(leftPause):
		}
	}
}

// killLeft kills what is there, waits until it has ended and returns how many
// processes that were. A process that ends has no environment any more before it
// has ended, so that looking again does not find it.
func killLeft(ctx context.Context, id string, uid uint32) (int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, errdefs.New(errdefs.Internal, "list processes: %w", err)
	}
	var killed []*os.File
	defer func() {
		for _, process := range killed {
			_ = process.Close()
		}
	}()
	var errs []error
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || !isLeft(dir, id, uid) {
			continue
		}
		process, err := killIf(pid, func() bool { return isLeft(dir, id, uid) })
		if process != nil {
			killed = append(killed, process)
		}
		errs = append(errs, err)
	}
	for _, process := range killed {
		_ = pidfd.Wait(ctx, process)
	}
	return len(killed), errors.Join(errs...)
}

// killIf kills the process that has the pid now, if it is still the one meant, and
// returns it; nil if it was not killed.
func killIf(pid int, is func() bool) (*os.File, error) {
	process, err := pidfd.Open(pid)
	if err != nil {
		return nil, nil //nolint:nilerr // it has ended
	}
	if !is() {
		return nil, process.Close()
	}
	if err := pidfd.Kill(process); err != nil {
		_ = process.Close()
		return nil, errdefs.New(errdefs.Denied, "end what a killed start has left: process %d: %w", pid, err)
	}
	return process, nil
}

// isLeft reports whether a live process carries the sandbox's uid or its mark.
func isLeft(dir, id string, uid uint32) bool {
	if uid != 0 {
		status, err := os.ReadFile(dir + "/status")
		if err != nil || isZombie(string(status)) {
			return false
		}
		if strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", uid)) {
			return true
		}
	}
	environment, err := os.ReadFile(dir + "/environ") // of a zombie it is empty
	return err == nil && slices.Contains(strings.Split(string(environment), "\x00"), markOf(id))
}

// isZombie reads proc_pid_status(5). A process that goes on without its first
// thread has that state, too.
func isZombie(status string) bool {
	return strings.Contains(status, "\nState:\tZ") && strings.Contains(status, "\nThreads:\t1\n")
}
