// Package worker runs this program again as a separate process that does one job and ends. A job
// may access a view; the process that serves the view must not.
//
// The job is JSON on the standard input, and its result JSON on the standard output.
package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/thread"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// FirstFD is the first descriptor of the files that Run passes on.
const FirstFD = 3

// answer is the standard output of the process.
type answer[R any] struct {
	api.Reply

	Result R `json:"result"`
}

// Run has a process do a job, and returns when the process has ended. The kernel kills the
// process if this one ends. verb is the hidden first word of its command line, which selects
// Main. The files are its descriptors from FirstFD on. what begins errors. Errors: those of the
// job, with which there may be a result; Internal; Deadline.
func Run[R any](ctx context.Context, verb, what string, job any, files ...*os.File) (R, error) {
	var a answer[R]
	input, err := json.Marshal(job)
	if err != nil {
		return a.Result, errdefs.New(errdefs.Internal, "%s: %w", what, err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", verb)
	var said bytes.Buffer
	cmd.Args[0] = "agentfense"
	cmd.Env = []string{}
	cmd.Stdin, cmd.Stdout, cmd.ExtraFiles = bytes.NewReader(input), &said, files
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan error, 1)
	thread.Go(func() { ended <- cmd.Run() })
	err = <-ended
	switch {
	case ctx.Err() != nil:
		return a.Result, errdefs.New(errdefs.Deadline, "%s: %w", what, ctx.Err())
	case err != nil:
		return a.Result, errdefs.New(errdefs.Internal, "%s: %w", what, err)
	}
	if err := json.Unmarshal(said.Bytes(), &a); err != nil {
		return a.Result, errdefs.New(errdefs.Internal, "%s: %w", what, err)
	}
	if a.Error != nil {
		return a.Result, a.Error.Err()
	}
	return a.Result, nil
}

// Main is the process of Run: it does the job, and returns its exit code.
func Main[J, R any](do func(job *J) (R, error)) int {
	var job J
	var a answer[R]
	err := json.NewDecoder(os.Stdin).Decode(&job)
	if err == nil {
		a.Result, err = do(&job)
	}
	if a.OK = err == nil; err != nil {
		a.Error = api.FailureOf(err)
	}
	if json.NewEncoder(os.Stdout).Encode(a) != nil {
		return 1
	}
	return 0
}
