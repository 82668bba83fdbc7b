package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// What is asked of the calls, by their medians.
const (
	mostLife        = 120 * time.Millisecond
	mostExec        = 10 * time.Millisecond
	mostSessionExec = 5 * time.Millisecond
	mostFirstByte   = 20 * time.Millisecond
	mostSync        = time.Second
)

// untimed is how often a call is made before it is measured.
const untimed = 3

// repeat measures a call so many times.
func repeat(ctx context.Context, rounds int, call func() error) (durations, error) {
	var took durations
	for i := range untimed + rounds {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		begun := time.Now()
		if err := call(); err != nil {
			return nil, err
		}
		if i >= untimed {
			took = append(took, time.Since(begun))
		}
	}
	return took, nil
}

// live is a whole life of a sandbox.
func (s *server) live(ctx context.Context, r *sandboxv1.CreateSandboxRequest) error {
	id, err := s.newSandbox(ctx, r)
	if err != nil {
		return err
	}
	return errors.Join(s.exec(ctx, id, "true"), s.destroy(ctx, id))
}

func measureLife(ctx context.Context, b *bench) ([]figure, error) {
	codebase, err := b.smallCodebase(ctx)
	if err != nil {
		return nil, err
	}
	took, err := repeat(ctx, b.Rounds, func() error {
		return b.live(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: codebase})
	})
	return took.figures("a sandbox's life", mostLife), err
}

// inSandbox measures a call on a sandbox that runs, and the processor time that
// each takes in all processes.
func (b *bench) inSandbox(ctx context.Context, rounds int, call func(sandbox string) error) (took durations, cpu figure, err error) {
	sandbox, err := b.freshSandbox(ctx)
	if err != nil {
		return nil, cpu, err
	}
	defer func() { err = errors.Join(err, b.destroy(ctx, sandbox)) }()
	used, err := b.using(func() error {
		took, err = repeat(ctx, rounds, func() error { return call(sandbox) })
		return err
	})
	cpu = figure{Name: "processor time, in all processes", Unit: nanoseconds, Value: float64(used) / float64(untimed+rounds)}
	return took, cpu, err
}

// often is how many times as often as lives short calls are measured.
const often = 10

func measureExec(ctx context.Context, b *bench) ([]figure, error) {
	took, cpu, err := b.inSandbox(ctx, often*b.Rounds, func(sandbox string) error { return b.exec(ctx, sandbox, "true") })
	return append(took.figures("Exec", mostExec), cpu), err
}

func measureSessionExec(ctx context.Context, b *bench) ([]figure, error) {
	session := ""
	took, cpu, err := b.inSandbox(ctx, often*b.Rounds, func(sandbox string) error {
		if session == "" {
			made, err := b.sandboxes.CreateSession(ctx, &sandboxv1.CreateSessionRequest{SandboxId: sandbox})
			if err != nil {
				return err
			}
			session = made.Id
		}
		r, err := b.sandboxes.SessionExec(ctx, &sandboxv1.SessionExecRequest{SessionId: session, Command: "true"})
		if err != nil {
			return err
		}
		return succeeded("true", r.ExitCode, r.Stderr)
	})
	return append(took.figures("SessionExec", mostSessionExec), cpu), err
}

func measureFirstByte(ctx context.Context, b *bench) ([]figure, error) {
	var first durations
	_, _, err := b.inSandbox(ctx, b.Rounds, func(sandbox string) error {
		begun := time.Now()
		end, err := b.begin(ctx, sandbox, "echo x")
		first = append(first, time.Since(begun))
		end()
		return err
	})
	return first[min(untimed, len(first)):].figures("ExecStream", mostFirstByte), err
}

// begin runs a command and returns at its first output. It goes on until end is
// called, so that it is not its end that pushes the output out.
func (s *server) begin(ctx context.Context, sandbox, command string) (end func(), err error) {
	ctx, end = context.WithCancel(ctx)
	stream, err := s.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{SandboxId: sandbox, Command: command + "; sleep 60"})
	if err != nil {
		return end, err
	}
	m, err := stream.Recv()
	if err == nil && len(m.Data) == 0 {
		err = fmt.Errorf("%s: first message %v", command, m)
	}
	return end, err
}

// changedFiles are carried over in the row sync.
const changedFiles = 3000

// measureSync measures an Exec of true at whose end there are so many changed
// files to carry over. A command that still runs has made them.
func measureSync(ctx context.Context, b *bench) ([]figure, error) {
	var took durations
	round := 0
	_, _, err := b.inSandbox(ctx, max(3, b.Rounds/8), func(sandbox string) error {
		round++
		end, err := b.begin(ctx, sandbox, makeFiles(fmt.Sprintf("round%d", round), changedFiles)+"; echo x")
		defer end()
		if err != nil {
			return err
		}
		begun := time.Now()
		if err := b.exec(ctx, sandbox, "true"); err != nil {
			return err
		}
		took = append(took, time.Since(begun))
		return nil
	})
	return took[min(1, len(took)):].figures("Exec", mostSync), err
}

// makeFiles is a script that makes n files in a directory, a hundred in each
// of its own.
func makeFiles(dir string, n int) string {
	return fmt.Sprintf(`i=0; while [ $i -lt %d ]; do d=%s/$((i / 100)); [ -d $d ] || mkdir -p $d; echo $i >$d/$i; i=$((i + 1)); done`, n, dir)
}
