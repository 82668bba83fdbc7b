package service

import (
	"context"
	"strings"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// outlive returns a run that continues after its caller has disconnected, until the server ends.
func (s *Service) outlive(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		done := make(chan error, 1)
		s.background.Go(func() {
			ctx, cancel := s.detached(ctx)
			defer cancel()
			done <- run(ctx)
		})
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-s.draining.Done():
			return errEnding()
		}
	}
}

// detached is a context that outlives the call, but not the server.
func (s *Service) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(s.stopped, cancel)
	return ctx, cancel
}

// awaitDetached syncs the changes of detached commands at their end. The server that started them
// is gone.
func (s *Service) awaitDetached(ctx context.Context, sb *record.Sandbox, client *api.Client) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	execs, err := client.Execs(ctx)
	if err != nil {
		return err
	}
	for _, x := range execs {
		if x.Exit != nil {
			continue
		}
		leave, err := s.execs.enter(sb.Record().Served.OwnerID, ration{}) // it is running already: no limit
		if err != nil {
			return err
		}
		s.background.Go(func() {
			defer leave()
			running, err := client.Attach(s.stopped, x.ID, [2]int64{})
			if err == nil {
				_, err = running.Wait(s.stopped)
			}
			if s.stopped.Err() != nil {
				return // the next server waits for it
			}
			if err == nil {
				_, err = s.syncAfter(s.stopped, &job{sandbox: sb, client: client})
				s.keepAfter(s.stopped, sb)
			}
			if err != nil {
				s.log.Warn("sandbox: cannot wait for the end of a detached command", "sandbox", sb.ID(), "exec", x.ID, "err", err)
			}
		})
	}
	return nil
}

// ListExecs lists the detached commands of a running sandbox.
func (c *sandboxServer) ListExecs(ctx context.Context, r *sandboxv1.ListExecsRequest) (*sandboxv1.ListExecsResponse, error) {
	sb, err := c.service.sandboxFor(ctx, r)
	if err != nil {
		return nil, err
	}
	execs, err := api.At(sb.Dir()).Execs(ctx)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, notRunning(sb)
	}
	if err != nil {
		return nil, err
	}
	answer := &sandboxv1.ListExecsResponse{}
	for _, x := range execs {
		answer.Execs = append(answer.Execs, detachedExec(x))
	}
	return answer, nil
}

// maxArgvBytes limits what a listing shows of one command.
const maxArgvBytes = 4 << 10

func detachedExec(x api.DetachedExec) *sandboxv1.DetachedExec {
	var code *int32
	if x.Exit != nil {
		code = new(int32(x.Exit.ExitCode()))
	}
	return wireconv.EncodeDetached(x, shownArgv(x.Argv), code)
}

// shownArgv is a command, cut to maxArgvBytes.
func shownArgv(argv [][]byte) (shown []string) {
	room := maxArgvBytes
	for _, arg := range argv {
		if len(arg) > room {
			arg = cutText(arg, room)
		}
		room -= len(arg)
		shown = append(shown, strings.ToValidUTF8(string(arg), "\uFFFD"))
		if room <= 0 {
			break
		}
	}
	return shown
}
