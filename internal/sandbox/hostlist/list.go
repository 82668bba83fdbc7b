package hostlist

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// List are the hosts that a sandbox may reach, as its record has them.
type List struct {
	// AllowNet are the hosts, in the form that Parse returns.
	AllowNet []string `json:"allow_net,omitempty"`
	// AllowNetUntil says when hosts of AllowNet end to be allowed. The others have no end.
	AllowNetUntil map[string]time.Time `json:"allow_net_until,omitempty"`
}

// A Change grants and revokes hosts. Both lists have the form that Parse returns.
type Change struct {
	Grant []string
	// For is how long the grants last; 0: until they are revoked.
	For    time.Duration
	Revoke []string
	Reason string // for the audit log
}

// Hosts returns the hosts that may be reached at a time.
func (l *List) Hosts(now time.Time) []string {
	return slices.DeleteFunc(slices.Clone(l.AllowNet), func(host string) bool {
		until, ends := l.AllowNetUntil[host]
		return ends && !now.Before(until)
	})
}

// Change makes a change at a time, and drops the grants that have ended. name is the sandbox's.
// Errors: NotFound for a host to revoke that is not allowed; Invalid.
func (l *List) Change(c Change, name string, now time.Time) error {
	l.DropEnded(now)
	hosts, until := l.AllowNet, l.AllowNetUntil
	if until == nil {
		until = map[string]time.Time{}
	}
	for _, revoked := range c.Revoke {
		i := slices.IndexFunc(hosts, func(host string) bool { return placeOf(host) == placeOf(revoked) })
		if i < 0 {
			return errdefs.New(errdefs.NotFound, "%s: not among the allowed hosts of %s%s", revoked, name, listed(hosts))
		}
		delete(until, hosts[i])
		hosts = slices.Delete(hosts, i, i+1)
	}
	for _, granted := range c.Grant {
		end, ends := until[granted]
		known := slices.Contains(hosts, granted)
		switch i := slices.IndexFunc(hosts, func(host string) bool { return placeOf(host) == placeOf(granted) }); {
		case !known && i >= 0:
			return errdefs.New(errdefs.Invalid, "%s: allowed as %s, and one port has one rule; revoke that first%s", granted, hosts[i], errdefs.Command("policy revoke "+name+" --net "+placeOf(hosts[i])))
		case !known:
			hosts = append(hosts, granted)
		case !ends:
			continue // it has no end, and a grant takes nothing
		}
		switch later := now.Add(c.For); {
		case c.For == 0:
			delete(until, granted)
		case !known || later.After(end):
			until[granted] = later.UTC()
		}
	}
	if _, err := allowlist.Parse(hosts); err != nil {
		return err
	}
	l.AllowNet, l.AllowNetUntil = hosts, until
	if len(until) == 0 {
		l.AllowNetUntil = nil
	}
	return nil
}

// placeOf returns HOST:PORT of a host, without what is allowed there.
func placeOf(host string) string {
	place, _, _ := strings.Cut(host, ",")
	return place
}

// listed ends the message that a host is not in a list.
func listed(hosts []string) string {
	if len(hosts) == 0 {
		return ", which has none"
	}
	return ": " + strings.Join(hosts, " ")
}

// NextEnd returns when the first grant ends, which may be in the past.
func (l *List) NextEnd() (end time.Time, ends bool) {
	for _, until := range l.AllowNetUntil {
		if !ends || until.Before(end) {
			end, ends = until, true
		}
	}
	return end, ends
}

// DropEnded drops the hosts whose grants have ended at a time, and returns them.
func (l *List) DropEnded(now time.Time) (ended []string) {
	live := l.Hosts(now)
	for _, host := range l.AllowNet {
		if !slices.Contains(live, host) {
			ended = append(ended, host)
			delete(l.AllowNetUntil, host)
		}
	}
	l.AllowNet = live
	return ended
}

// Event tells of a change that was made at a time.
func (l *List) Event(c Change, now time.Time) audit.HostsChanged {
	e := audit.HostsChanged{Reason: c.Reason, Granted: audit.Texts(c.Grant), Revoked: audit.Texts(c.Revoke)}
	for _, host := range l.Hosts(now) {
		a := audit.AllowedHost{Host: audit.Text(host)}
		if until, ends := l.AllowNetUntil[host]; ends {
			a.Until = until.UTC().Format(time.RFC3339Nano)
		}
		e.AllowNet = append(e.AllowNet, a)
	}
	return e
}

// Check refuses ends of hosts that are not allowed. Errors: Precondition.
func (l *List) Check() error {
	for host := range l.AllowNetUntil {
		if !slices.Contains(l.AllowNet, host) {
			return errdefs.New(errdefs.Precondition, "allow_net_until names %q, which is not an allowed host", host)
		}
	}
	return nil
}

// Clone returns a copy that shares nothing.
func (l *List) Clone() List {
	return List{slices.Clone(l.AllowNet), maps.Clone(l.AllowNetUntil)}
}
