package supervise

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress"
	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// startNetwork makes a network of named hosts, if the sandbox has one. program plays the egress
// process, too.
func (s *supervisor) startNetwork(program string) error {
	if s.record.Net != record.NetNamed {
		return nil
	}
	rec := s.box.Record()
	rec.DropEnded(s.startedAt)
	s.record.AllowNet = rec.AllowNet
	rules, err := allowlist.Parse(rec.AllowNet)
	if err != nil {
		return err
	}
	fd, err := unix.Open(program, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return errdefs.New(errdefs.Internal, "open our own program: %w", err)
	}
	uid := int(s.record.OtherUID())
	s.egress, err = egress.Start(egress.Options{
		Program: os.NewFile(uintptr(fd), "program"), UID: uid, GID: uid, Rules: rules,
		Allowed: s.onAllowed, Denied: s.onRefused,
		Failed: func(err error) { s.log.Error("the network is down for a moment", "err", err) },
	})
	if err == nil {
		s.beginHosts(rec)
	}
	return err
}

// networkReady returns when the network works.
func (s *supervisor) networkReady(ctx context.Context) error {
	if s.egress == nil {
		return nil
	}
	return s.egress.Ready(ctx)
}

// endNetwork ends the network meanwhile, and closes the channel when the last of it is recorded.
func (s *supervisor) endNetwork() <-chan struct{} {
	ended := make(chan struct{})
	s.endHosts()
	go func() {
		defer close(ended)
		if s.egress != nil {
			s.warn("egress: close", s.egress.Close())
		}
	}()
	return ended
}

// onAllowed records a connection that has ended.
func (s *supervisor) onAllowed(a egress.Allowed) {
	event := audit.NetworkAllowed{
		Host: audit.Text(a.Host), Port: a.Port, Rule: audit.Text(a.Rule),
		SentBytes: a.Sent, ReceivedBytes: a.Received, Requests: a.Requests, Error: audit.Text(a.Error),
	}
	if a.Addr.IsValid() {
		event.Address = a.Addr.String()
	}
	s.append(event)
}

// onRefused records what was not let out.
func (s *supervisor) onRefused(d egress.Denied) {
	s.append(audit.NetworkDenied{Host: audit.Text(d.Host), Port: d.Port, Reason: audit.Text(d.Reason), Count: d.Count})
}
