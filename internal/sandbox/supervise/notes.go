package supervise

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress"
	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/notes"
	"github.com/agentfense/agentfense/internal/view/fusefs"
)

// mountNotes makes the directory in which programs inside find what is granted and what was
// refused.
func (s *supervisor) mountNotes(context.Context) (err error) {
	var stubs []string
	if slices.ContainsFunc(s.record.AllowNet, hostlist.Intercepts) {
		stubs = isolate.AuthorityStubs
	}
	if s.docker() {
		stubs = slices.Concat(stubs, isolate.DockerStubs)
	} else {
		stubs = append(slices.Clip(stubs), isolate.ShimStub)
	}
	var dirs []string
	if s.record.Home == record.HomeKeep {
		dirs = []string{filepath.Base(record.KeptHomeInside)}
	}
	s.notes, err = notes.Mount(filepath.Join(s.box.Dir(), launch.NotesDir), stubs, dirs)
	if err != nil {
		return err
	}
	hosts := s.record.Hosts(time.Now())
	s.hosts.inEffect.Store(&hosts)
	return s.notes.Describe(s.facts)
}

// facts are what the notes say.
func (s *supervisor) facts() notes.Facts {
	r := &s.record
	f := notes.Facts{
		Sandbox: s.named(), Workspace: r.Workspace, Rules: s.rules(), Named: s.hasNamedNet(), Hosts: s.hosts.inForce(),
		HostNet: r.Net == record.NetHost || r.Net == record.NetBridge, Asks: r.Ask != nil, Board: r.Board,
	}
	for _, m := range r.Mounts {
		f.Mounts = append(f.Mounts, string(m.Target))
	}
	return f
}

// named is how a command outside names the sandbox.
func (s *supervisor) named() notes.Sandbox {
	return notes.Sandbox{Name: s.record.Name, OfServer: s.record.Served != nil}
}

// describe brings the notes up to date.
func (s *supervisor) describe() { s.warn("notes: describe", s.notes.Describe(s.facts)) }

// noteHostForProgram tells the programs inside of a host that was refused.
func (s *supervisor) noteHostForProgram(d egress.Denied) {
	host := d.Host
	if d.Port != 0 {
		host = net.JoinHostPort(host, strconv.Itoa(int(d.Port)))
	}
	_, err := hostlist.Parse([]string{host})
	s.warn("notes: refusal", s.notes.Host(s.named(), host, d.Reason, err == nil && d.Protocol == "" && d.Reason == egress.NotAllowed))
}

// noteForProgram tells the programs inside of a refusal of what they can see.
func (s *supervisor) noteForProgram(mount string, d fusefs.Denial, rule string) {
	p := notes.PathDenial{
		Sandbox: s.named(), Root: s.record.Workspace, Mount: mount, Path: d.Path, Operation: d.Operation,
		Permission: d.Permission, Rule: rule, Program: d.Program,
	}
	if d.Locked {
		p.Lock = d.Reason
	}
	for _, m := range s.mounts {
		if m.name == mount {
			p.Root = m.target
		}
	}
	s.warn("notes: refusal", s.notes.Path(p))
}
