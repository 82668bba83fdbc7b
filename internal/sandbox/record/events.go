package record

import (
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/contributor"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// OpenLog opens the sandbox's audit log before an action. Errors: Exhausted if there is no
// room to record it.
func (s *Sandbox) OpenLog() (*audit.Log, error) {
	log, err := s.openLog()
	if err != nil {
		return nil, err
	}
	if err := log.CheckRoom(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

// openLog opens the log for a finished action, or for one that frees space.
func (s *Sandbox) openLog() (*audit.Log, error) {
	r := s.Record()
	o := audit.Options{Sandbox: r.Name, ID: string(r.ID)}
	if r.Served != nil {
		o.CodebaseID, o.UserID = r.Served.CodebaseID, r.Served.OwnerID
	}
	o.Budget.Bytes = s.Home.audit.MaxBytesPerSandbox
	if most := s.Home.audit.MaxBytesPerOwner; most > 0 {
		o.Budget.OwnerBytes = most
		o.Budget.OwnerUsed = func() (int64, error) { return s.Home.auditSize(o.UserID, most/2) }
	}
	return audit.Open(s.AuditPath(), o)
}

// Log appends one event to the sandbox's audit log.
func (s *Sandbox) Log(ev audit.Event) error {
	l, err := s.openLog()
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Append(ev)
}

// ReplaceRules stores another policy and records it, with the reason why, in the audit log.
// also, if not nil, changes the record in the same step. The caller informs a running
// supervisor. Errors: Precondition if they would apply to what a scratch directory has, or hide
// what a clean repository shows.
func (s *Sandbox) ReplaceRules(rules []policy.Rule, note, why string, also func(*Record)) error {
	r := s.Record()
	if err := s.checkContents(rules, &r); err != nil {
		return err
	}
	log, err := s.OpenLog()
	if err != nil {
		return err
	}
	err = s.Update(func(r *Record) error {
		r.SetRules(rules, note)
		if also != nil {
			also(r)
		}
		return log.Append(audit.PolicyChanged{Reason: why, Preset: note, Rules: AuditRules(rules)})
	})
	return errors.Join(err, log.Close())
}

// checkContents refuses rules that what is kept beside the delta excludes: scratch directories, and
// the clean repository. Errors: Precondition.
func (s *Sandbox) checkContents(rules []policy.Rule, r *Record) error {
	if err := scratch.StoreIn(s.Dir()).CheckChange(rules, r.Scratch); err != nil {
		return err
	}
	return cleangit.StoreIn(s.Dir()).CheckChange(rules, r.Git)
}

// createdEvent describes how the sandbox was made.
func (s *Sandbox) createdEvent() audit.SandboxCreated {
	r := &s.Stored
	e := audit.SandboxCreated{
		Source: audit.Text(r.Source.Path), Workspace: audit.Text(r.Workspace),
		Runtime: r.Runtime, Net: r.Net, HostUID: r.HostUID, Preset: r.PolicyNote, Git: string(r.Git),
		Rules: AuditRules(r.Rules), Mounts: contributor.AuditMounts(r.Mounts),
		Limits: audit.SandboxLimits{
			MemoryBytes: r.Limits.MemoryBytes, CPUs: r.Limits.CPUs, CPUShares: r.Limits.CPUShares, PIDs: r.Limits.PIDs,
			DiskBytes: r.Limits.DiskBytes, DiskInodes: r.Limits.DiskInodes,
			TimeoutMS: time.Duration(r.Limits.Timeout).Milliseconds(),
		},
	}
	for i, m := range r.Mounts {
		if m.Mode == mountspec.PolicyFile {
			e.Mounts[i].Rules = AuditRules(m.Rules)
		}
	}
	if r.Served != nil { // clients of a server may read the log
		e.Source = audit.Text(r.Served.CodebaseID)
	}
	return e
}

// AuditRules returns rules in the form of the audit log.
func AuditRules(rules []policy.Rule) []audit.Rule {
	list := make([]audit.Rule, len(rules))
	for i, r := range rules {
		list[i] = audit.Rule{
			Pattern: audit.Text(r.Pattern), Permission: r.Permission.String(),
			Type: r.Type.String(), Priority: r.Priority, Source: audit.Text(r.Source),
		}
	}
	return list
}
