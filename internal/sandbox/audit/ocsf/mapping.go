package ocsf

import (
	"cmp"
	"path"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

// mapping is the class of a kind of event, and what fills the event's own fields.
type mapping struct {
	class    class
	activity activity
	severity severity
	fill     func(e Event, r audit.Record) []Event
}

// mappings has each kind of event that is written. A test fails for one that is absent.
var mappings = map[audit.Kind]mapping{
	audit.KindSandboxCreated:        {lifecycle, activity{1, "Install"}, informational, sandbox},
	audit.KindSandboxStarted:        {lifecycle, activity{3, "Start"}, informational, sandbox},
	audit.KindSandboxStopped:        {lifecycle, activity{4, "Stop"}, informational, sandbox},
	audit.KindSandboxDestroyed:      {lifecycle, activity{2, "Remove"}, informational, sandbox},
	audit.KindSandboxRebased:        {lifecycle, activity{8, "Update"}, low, sandbox},
	audit.KindSnapshotChanged:       {lifecycle, activity{8, "Update"}, low, sandbox},
	audit.KindChangesImported:       {lifecycle, activity{8, "Update"}, low, sandbox},
	audit.KindCommandExecuted:       {processes, activity{2, "Terminate"}, informational, command},
	audit.KindSessionCreated:        {processes, activity{1, "Launch"}, informational, session},
	audit.KindSessionClosed:         {processes, activity{2, "Terminate"}, informational, session},
	audit.KindResourceLimitExceeded: {processes, other("Limit reached"), medium, limit},
	audit.KindPermissionDenied:      {fileSystem, activity{14, "Open"}, medium, denied},
	audit.KindFileChanged:           {fileSystem, activity{3, "Update"}, informational, changed},
	audit.KindApplied:               {fileSystem, activity{3, "Update"}, low, applied},
	audit.KindDiscarded:             {fileSystem, activity{4, "Delete"}, informational, discarded},
	audit.KindUndone:                {fileSystem, activity{3, "Update"}, low, undone},
	audit.KindMerged:                {fileSystem, activity{3, "Update"}, low, merged},
	audit.KindNetworkAllowed:        {network, activity{2, "Close"}, informational, connected},
	audit.KindNetworkDenied:         {network, activity{5, "Refuse"}, medium, refused},
	audit.KindPortConnected:         {network, activity{2, "Close"}, informational, entered},
	audit.KindHostsChanged:          {entityManaged, activity{3, "Update"}, low, policyChanged},
	audit.KindPolicyChanged:         {entityManaged, activity{3, "Update"}, low, policyChanged},
	audit.KindAccessAsked:           {baseEvent, other("Access asked"), low, asItIs},
	audit.KindAccessAnswered:        {baseEvent, other("Access answered"), low, asItIs},
	audit.KindAsksSuppressed:        {baseEvent, other("Asks suppressed"), medium, asItIs},
	audit.KindLocksChanged:          {baseEvent, other("Locks changed"), low, asItIs},
	audit.KindMessagePosted:         {baseEvent, other("Message posted"), low, asItIs},
	audit.KindApplyRequested:        {baseEvent, other("Apply requested"), low, asItIs},
	audit.KindEventsOmitted:         {baseEvent, other("Events omitted"), medium, asItIs},
	audit.KindArchived:              {baseEvent, other("Archived"), informational, asItIs},
	audit.KindGap:                   {baseEvent, other("Gap"), high, asItIs},
}

// asItIs keeps the record's own line.
func asItIs(e Event, r audit.Record) []Event {
	e.RawData = strings.ToValidUTF8(string(r.Raw), "\ufffd")
	return []Event{e}
}

func sandbox(e Event, r audit.Record) []Event {
	e.succeed(true)
	e.App = &product{"sandbox " + vpath.Escape(string(r.Sandbox)), "agentfense", e.Metadata.Product.Version}
	switch r.Event.(type) {
	case audit.SandboxCreated, audit.SandboxStarted, audit.SandboxRebased, audit.SnapshotChanged, audit.ChangesImported:
		return asItIs(e, r)
	}
	return []Event{e}
}

func command(e Event, r audit.Record) []Event {
	c := r.Event.(audit.CommandExecuted)
	e.Metadata.CorrelationUID = c.Exec
	words := make([]string, len(c.Argv))
	for i, a := range c.Argv {
		words[i] = vpath.Escape(string(a))
	}
	e.Process = &process{CmdLine: strings.Join(words, " "), UID: c.Exec}
	if len(c.Argv) > 0 {
		e.Process.Name = audit.Text(path.Base(string(c.Argv[0])))
	}
	e.ExitCode, e.Duration, e.StatusDetail = &c.ExitCode, c.DurationMS, c.Error
	e.succeed(c.ExitCode == 0)
	return []Event{e}
}

func session(e Event, r audit.Record) []Event {
	switch s := r.Event.(type) {
	case audit.SessionCreated:
		e.Metadata.CorrelationUID = s.Exec
		e.Process = &process{Name: audit.Text(path.Base(string(s.Shell))), CmdLine: vpath.Escape(string(s.Shell)), UID: s.Session}
	case audit.SessionClosed:
		e.Metadata.CorrelationUID = s.Exec
		e.Process, e.Duration, e.StatusDetail = &process{UID: s.Session}, s.DurationMS, audit.Text(s.Reason)
	}
	e.succeed(true)
	return []Event{e}
}

func limit(e Event, r audit.Record) []Event {
	l := r.Event.(audit.ResourceLimitExceeded)
	e.Metadata.CorrelationUID = l.Exec
	e.Process, e.Count = &process{UID: l.Exec}, int(l.Count)
	e.deny()
	e.StatusDetail = audit.Text(l.Resource)
	return asItIs(e, r)
}

// operations are the activities of the operations that the policy refuses; the others are an
// Open.
var operations = map[string]activity{
	"create": {1, "Create"}, "mkdir": {1, "Create"}, "mknod": {1, "Create"}, "symlink": {1, "Create"}, "link": {1, "Create"}, "bind": {1, "Create"},
	"read": {2, "Read"}, "readlink": {2, "Read"}, "opendir": {2, "Read"},
	"write": {3, "Update"}, "truncate": {3, "Update"},
	"unlink": {4, "Delete"}, "rmdir": {4, "Delete"}, "rename": {5, "Rename"},
	"setattr": {6, "Set Attributes"}, "setxattr": {6, "Set Attributes"}, "utimensat": {6, "Set Attributes"},
	"chmod": {7, "Set Security"}, "chown": {7, "Set Security"},
	"getxattr": {8, "Get Attributes"}, "listxattr": {8, "Get Attributes"},
}

func denied(e Event, r audit.Record) []Event {
	d := r.Event.(audit.PermissionDenied)
	e.Metadata.CorrelationUID = d.Exec
	if a, known := operations[d.Operation]; known {
		e.act(a)
	}
	e.File, e.Count = fileAt(d.Mount, audit.Text(d.Path)), max(d.Count, 1)
	e.Actor.Process = &process{PID: d.PID, Name: d.Program, UID: d.Exec}
	e.deny()
	e.StatusDetail = audit.Text(d.Operation)
	e.Policy = policyOf(d.Rule, d.RuleSource)
	return []Event{e}
}

// policyOf is the rule that decided, if there was one.
func policyOf(rule, source audit.Text) *policy {
	if rule == "" {
		return &policy{Name: "default deny"}
	}
	return &policy{Name: rule, Desc: source}
}

// fileAt is a file of a mount; "" is the workspace.
func fileAt(mount string, p audit.Text) *file {
	f := &file{Name: audit.Text(path.Base(string(p))), Path: p}
	if mount != "" {
		f.Path = audit.Text(mount) + ":" + p
	}
	return f
}

func changed(e Event, r audit.Record) []Event {
	c := r.Event.(audit.FileChanged)
	e.Metadata.CorrelationUID = c.Exec
	e.allow()
	var all []Event
	for _, group := range []struct {
		activity activity
		paths    []audit.Text
	}{{activity{1, "Create"}, c.Created}, {activity{3, "Update"}, c.Modified}, {activity{4, "Delete"}, c.Deleted}} {
		e.act(group.activity)
		all = append(all, each(e, c.Mount, group.paths)...)
	}
	e.act(activity{5, "Rename"})
	for _, renamed := range c.Renamed {
		e.File, e.FileResult = fileAt(c.Mount, renamed.From), fileAt(c.Mount, renamed.To)
		all = append(all, e)
	}
	e.FileResult = nil
	return withOmitted(all, e, c.Omitted)
}

// each is an event for each path of a mount; "" is the workspace.
func each(e Event, mount string, paths []audit.Text) []Event {
	var all []Event
	for _, p := range paths {
		e.File = fileAt(mount, p)
		all = append(all, e)
	}
	return all
}

// withOmitted adds an event for the paths that the record does not list, and makes sure that there
// is one.
func withOmitted(all []Event, e Event, omitted int64) []Event {
	if omitted == 0 && len(all) > 0 {
		return all
	}
	e.act(other("Not listed"))
	e.File, e.Count = &file{}, int(omitted)
	return append(all, e)
}

func applied(e Event, r audit.Record) []Event {
	a := r.Event.(audit.Applied)
	e.allow()
	e.Message, e.StatusDetail = "applied", cmp.Or(a.To, a.Branch)
	all := each(e, a.Mount, a.Paths)
	conflict := e
	conflict.deny()
	conflict.Message = "conflict: not applied"
	return withOmitted(append(all, each(conflict, a.Mount, a.Refused)...), e, a.Omitted)
}

func discarded(e Event, r audit.Record) []Event {
	d := r.Event.(audit.Discarded)
	e.allow()
	e.Message = "discarded"
	return withOmitted(each(e, d.Mount, d.Paths), e, d.Omitted)
}

func undone(e Event, r audit.Record) []Event {
	u := r.Event.(audit.Undone)
	e.allow()
	e.Message, e.StatusDetail = "undone: "+vpath.Escape(u.Of), u.To
	if u.Redo {
		e.Message = "applied again: " + vpath.Escape(u.Of)
	}
	return withOmitted(each(e, u.Mount, u.Paths), e, u.Omitted)
}

func merged(e Event, r audit.Record) []Event {
	m := r.Event.(audit.Merged)
	e.allow()
	e.Message, e.StatusDetail = "merged into the sandbox", m.From
	return withOmitted(each(e, "", m.Paths), e, m.Omitted)
}

// outbound is a connection from the sandbox.
var outbound = connection{DirectionID: 2, ProtocolName: "tcp"}

func connected(e Event, r audit.Record) []Event {
	n := r.Event.(audit.NetworkAllowed)
	e.DstEndpoint = &endpoint{Hostname: n.Host, IP: n.Address, Port: n.Port}
	e.Connection, e.Policy = &outbound, policyOf(n.Rule, "")
	e.allow()
	if n.SentBytes >= 0 && n.ReceivedBytes >= 0 && n.Error == "" {
		e.Traffic = &traffic{n.SentBytes, n.ReceivedBytes, n.SentBytes + n.ReceivedBytes}
	}
	if n.Error != "" {
		e.act(activity{4, "Fail"})
		e.succeed(false)
		e.StatusDetail = n.Error
	}
	return []Event{e}
}

// inbound is a connection to the sandbox.
var inbound = connection{DirectionID: 1, ProtocolName: "tcp"}

func entered(e Event, r audit.Record) []Event {
	n := r.Event.(audit.PortConnected)
	e.DstEndpoint, e.Connection = &endpoint{IP: n.Address, Port: n.HostPort}, &inbound
	e.allow()
	if n.SentBytes >= 0 && n.ReceivedBytes >= 0 && n.Error == "" {
		e.Traffic = &traffic{n.SentBytes, n.ReceivedBytes, n.SentBytes + n.ReceivedBytes}
	}
	if n.Error != "" {
		e.act(activity{4, "Fail"})
		e.succeed(false)
		e.StatusDetail = n.Error
	}
	return []Event{e}
}

func refused(e Event, r audit.Record) []Event {
	n := r.Event.(audit.NetworkDenied)
	e.Count = max(n.Count, 1)
	e.Connection = &connection{outbound.DirectionID, cmp.Or(n.Protocol, n.Socket, outbound.ProtocolName)}
	if n.Socket == "" {
		e.DstEndpoint = &endpoint{Hostname: n.Host, Port: n.Port}
	} else { // it had no target yet, but the class requires one
		e.DstEndpoint, e.Actor.Process = &endpoint{Name: n.Socket}, &process{Name: n.Program}
	}
	e.deny()
	e.StatusDetail = n.Reason
	return []Event{e}
}

func policyChanged(e Event, r audit.Record) []Event {
	e.succeed(true)
	e.Entity = &entity{Name: "policy", Type: "Policy", UID: r.ID}
	switch p := r.Event.(type) {
	case audit.PolicyChanged:
		e.StatusDetail = audit.Text(p.Reason)
	case audit.HostsChanged:
		e.StatusDetail = audit.Text(p.Reason)
	}
	return asItIs(e, r)
}
