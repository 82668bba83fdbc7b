package supervise

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// hostClock ends grants of hosts in time.
type hostClock struct {
	clock
	rec record.Record // as it was read last

	inEffect atomic.Pointer[[]string] // the hosts, for who must not wait for mu
}

// takeHosts reads the hosts from the record and puts them into force.
func (s *supervisor) takeHosts() error {
	if s.egress == nil {
		return errdefs.New(errdefs.Precondition, "sandbox %s: runs without a network of named hosts", s.box.Name())
	}
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	box, err := s.home.Open(s.box.Name())
	if err != nil {
		return err
	}
	before := s.hosts.rec
	s.hosts.rec = box.Record()
	if err = s.putHostsLocked(); err != nil { // what was in force still is, and ends in time
		s.hosts.rec = before
		s.setHostClockLocked()
		return err
	}
	return s.checkOpened(before.AllowNet, s.hosts.rec.AllowNet)
}

// checkOpened tells of a new host whose connections cannot be opened: programs that run do not know
// an authority that would begin now. Errors: Precondition.
func (s *supervisor) checkOpened(before, now []string) error {
	rules, err := allowlist.Parse(now)
	if err != nil || s.authority != nil {
		return err
	}
	for _, r := range rules {
		if r.Intercept && !slices.Contains(before, r.String()) {
			return errdefs.New(errdefs.Precondition, "%s: allowed, but TLS to it works only after a new start: this sandbox was started without an intercepted host; stop the sandbox, and start it again", r.WithoutRequests())
		}
	}
	return nil
}

// beginHosts starts the clock of a network that has just begun.
func (s *supervisor) beginHosts() {
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	s.setHostClockLocked()
}

// putHostsLocked tells of the grants that have ended, puts the hosts into force that are allowed
// now, and sets the timer for the grants that will end.
func (s *supervisor) putHostsLocked() error {
	now := time.Now()
	if ended := s.hosts.rec.DropEnded(now); len(ended) > 0 { // a command that notices ends after this in the log
		s.append(s.hosts.rec.Event(hostlist.Change{Revoke: ended, Reason: "the time is over"}, now))
	}
	rules, err := s.networkRules(s.hosts.rec.AllowNet)
	if err == nil {
		err = s.egress.SetRules(rules)
	}
	if err != nil {
		return err
	}
	s.setHostClockLocked()
	hosts := slices.Clone(s.hosts.rec.AllowNet)
	s.hosts.inEffect.Store(&hosts)
	s.describe()
	return nil
}

// inForce returns the hosts that may be reached, as far as they are known.
func (c *hostClock) inForce() []string {
	if hosts := c.inEffect.Load(); hosts != nil {
		return *hosts
	}
	return nil
}

// setHostClockLocked sets the clock for the next grant of a host that ends.
func (s *supervisor) setHostClockLocked() {
	end, ends := s.hosts.rec.NextEnd()
	s.hosts.setLocked(end, ends, func() {
		s.endGrants(&s.hosts.clock, s.hosts.rec.NextEnd, s.setHostClockLocked, s.putHostsLocked)
	})
}
