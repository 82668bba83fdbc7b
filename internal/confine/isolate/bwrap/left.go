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

// Bubblewrap's child waits for its parent on an eventfd, which has no end of file. If the
// parent is killed before it releases the child, the child waits forever, outside any
// control group. To make such a child findable, each bubblewrap has the id of its sandbox
// in its environment, which the child keeps until it becomes PID 1.
const markVariable = "AGENTFENSE_SANDBOX_ID"

func markOf(id string) string { return markVariable + "=" + id }

// leftPause is how long EndLeft waits between two searches.
const leftPause = time.Millisecond

// EndLeft kills the processes that a killed start of the sandbox id has left. For a sandbox
// started by root, uid is its unique host uid, and EndLeft kills all processes of it. It
// returns when no such process exists. Errors: Unavailable, if ctx ends first; Internal.
func EndLeft(ctx context.Context, id string, uid uint32) error {
	for {
		n, err := killLeft(ctx, id, uid)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return errdefs.New(errdefs.Unavailable, "end the processes of a killed start: %d do not end", n)
		case <-time.After(leftPause):
		}
	}
}

// killLeft kills the processes that it finds, waits for their end and returns their number.
// It must wait, because a process that is ending has no environment, so that another search
// does not find it.
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
		return nil, errdefs.New(errdefs.Denied, "end the processes of a killed start: process %d: %w", pid, err)
	}
	return process, nil
}

// isLeft reports whether a process lives and has the sandbox's uid or its mark.
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
	environment, err := os.ReadFile(dir + "/environ") // empty for a zombie
	return err == nil && slices.Contains(strings.Split(string(environment), "\x00"), markOf(id))
}

// isZombie reads proc_pid_status(5). A process that runs without its first thread has that
// state, too.
func isZombie(status string) bool {
	return strings.Contains(status, "\nState:\tZ") && strings.Contains(status, "\nThreads:\t1\n")
}
