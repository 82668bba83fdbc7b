package record

import (
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
)

// ChangeHosts stores other hosts that the sandbox may reach, and records that in the audit log.
// A stopped sandbox without a network gets one by it. The caller informs a running supervisor.
// Errors: those of hostlist.List.Change; Precondition for a sandbox with another network.
func (s *Sandbox) ChangeHosts(c hostlist.Change) error {
	log, err := s.OpenLog()
	if err != nil {
		return err
	}
	err = s.Update(func(r *Record) error {
		before, now, err := r.clone(), time.Now(), s.takesHosts(r)
		if err == nil {
			r.Net = NetNamed
			err = r.List.Change(c, r.Name, now)
		}
		if err == nil {
			err = r.NoteEarlier(&before) // before the log has the hosts
		}
		if err == nil {
			err = log.Append(r.Event(c, now))
		}
		return err
	})
	return errors.Join(err, log.Close())
}

// takesHosts refuses a sandbox that cannot have a network of named hosts.
func (s *Sandbox) takesHosts(r *Record) error {
	_, held, err := s.Holder()
	switch {
	case r.Net == NetNamed || err != nil:
		return err
	case r.Net != NetNone:
		return errdefs.New(errdefs.Precondition, "sandbox %s: its network is %s, by which every host can be reached; for named hosts make one that names them (--allow-net; in the API: allow_net)", r.Name, r.Net)
	case held:
		return errdefs.New(errdefs.Precondition, "sandbox %s: runs without a network, and hosts can be added only to a network; stop it first%s", r.Name, errdefs.Command("stop "+r.Name))
	}
	return nil
}
