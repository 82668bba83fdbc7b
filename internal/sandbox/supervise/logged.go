package supervise

import (
	"io"
	"os"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// streamNames are the output streams in the order in which commands have them.
var streamNames = [...]outlog.Stream{outlog.Stdout, outlog.Stderr}

// beginLogged notes in the output log that a detached command begins.
func (s *supervisor) beginLogged(x *execution, streams int) {
	if x.command.Detached {
		s.output.Begin(x.id, api.ToBytes(x.command.Argv), streams)
	}
}

// endLogged notes how a detached command ended, or that it never ran.
func (s *supervisor) endLogged(x *execution, exit api.Exit, err error) {
	if !x.command.Detached {
		return
	}
	if err != nil {
		s.output.Cancel(x.id)
		return
	}
	s.output.End(x.id, outlog.Exit{Code: exit.Code, Signal: exit.Signal, Reason: string(exit.Reason)})
}

func closeLogged(streams []io.WriteCloser) {
	for _, stream := range streams {
		stream.Close()
	}
}

// logStreams gives a detached command an empty input and pipes into the output log,
// which takes what its background processes write after its end, too. The command's
// ends are in inner.Files; the caller closes them when they have been passed on.
func (s *supervisor) logStreams(x *execution, inner *guest.Command) error {
	s.beginLogged(x, len(streamNames))
	for i := range inner.Files {
		r, w, err := os.Pipe()
		if err != nil {
			api.CloseAll(inner.Files[:]...)
			return errdefs.New(errdefs.Exhausted, "pipe: %w", err)
		}
		if i == 0 {
			inner.Files[i] = r
			w.Close()
			continue
		}
		inner.Files[i] = w
		stream := s.output.Stream(x.id, streamNames[i-1])
		o := api.CopyOutput(stream, r)
		x.logged = append(x.logged, o)
		go func() {
			<-o.Done
			r.Close()
			stream.Close()
		}()
	}
	return nil
}
