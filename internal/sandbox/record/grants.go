package record

import (
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
)

// Ask says that refusals wait until somebody answers.
type Ask struct {
	// Timeout is how long an answer may take. Then it is a denial.
	Timeout Duration `json:"timeout"`
	// Hook is a shell command of the caller's, which answers; "" for none.
	Hook string `json:"hook,omitempty"`
}

// check refuses what no flag gives. Errors: Precondition.
func (a *Ask) check() error {
	if a != nil && a.Timeout <= 0 {
		return errdefs.New(errdefs.Precondition, "ask has no time-out")
	}
	return nil
}

// GrantPath stores a grant of a path, or its end, and records that in the audit log. The caller
// informs a running supervisor. Errors: NotFound for a grant to revoke; Invalid; Precondition.
func (s *Sandbox) GrantPath(c granted.Change) error {
	log, err := s.OpenLog()
	if err != nil {
		return err
	}
	err = s.Update(func(r *Record) error {
		rules, err := r.ChangeGrants(c, r.Rules, r.Name, time.Now())
		if err != nil || rules == nil {
			return err
		}
		if err := s.checkContents(rules, r); err != nil {
			return err
		}
		r.SetRules(rules, r.PolicyNote)
		return log.Append(r.policyEvent(c.Reason))
	})
	return errors.Join(err, log.Close())
}

func (r *Record) policyEvent(reason string) audit.PolicyChanged {
	return audit.PolicyChanged{Reason: reason, Preset: r.PolicyNote, Rules: AuditRules(r.Rules)}
}

// RememberOnce stores that a path was opened once to be written, so that what was written may be
// applied. mount is "" for the workspace.
func (s *Sandbox) RememberOnce(mount string, p vpath.Path) error {
	return s.Update(func(r *Record) error {
		r.Paths.RememberOnceIn(mount, p, time.Now())
		return nil
	})
}

// StoreEndedGrants stores that grants have ended, and records it in the audit log, as every update
// of the record does. The caller informs a running supervisor.
func (s *Sandbox) StoreEndedGrants() error { return s.Update(func(*Record) error { return nil }) }

// endGrants drops the rules of the grants that have ended at a time.
func (r *Record) endGrants(now time.Time) {
	if rules := r.DropEndedGrants(r.Rules, now); r.GrantsEnded {
		r.SetRules(rules, r.PolicyNote)
	}
}
