package api

import (
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Effects are what the policy refused a command, and what it changed in the
// view, from its start to its end: it and all its descendants. What they do
// after its end is only in the audit log, as is what cannot be told whose it is:
// writing through a mapping while several commands run.
type Effects struct {
	Denied []Denied `json:"denied,omitempty"`
	// DeniedCount is how many refusals there were, repeats included.
	DeniedCount int64     `json:"denied_count,omitempty"`
	Changed     []Changed `json:"changed,omitempty"` // by mount, then by path
	// ChangedCount is how many changes there were.
	ChangedCount int64 `json:"changed_count,omitempty"`
}

// Denied is what the policy refused, as often as Count says. Its texts are
// encoded (vpath.EncodeText).
type Denied struct {
	Mount      string            `json:"mount,omitempty"` // in which Path is; empty: the workspace
	Path       string            `json:"path"`
	Operation  string            `json:"operation"`
	Permission policy.Permission `json:"permission"` // what the path has
	Rule       string            `json:"rule,omitempty"`
	RuleIndex  int               `json:"rule_index"`     // policy.NoRule: none decided
	Lock       string            `json:"lock,omitempty"` // who has locked the path; "": no lock
	PID        int               `json:"pid,omitempty"`
	Program    string            `json:"program,omitempty"`
	Count      int64             `json:"count"`
}

// ChangeKind says what became of a path.
type ChangeKind = fusefs.ChangeKind

// The kinds of changes.
const (
	Created  = fusefs.Created
	Modified = fusefs.Modified
	Deleted  = fusefs.Deleted
	Renamed  = fusefs.Renamed
)

// Changed is one change, net. Its paths are encoded (vpath.EncodeText).
type Changed struct {
	Mount string     `json:"mount,omitempty"` // in which the paths are; empty: the workspace
	Path  string     `json:"path"`
	Kind  ChangeKind `json:"kind"`
	From  string     `json:"from,omitempty"` // of a renamed one
}

// What Effects list at most: entries of each list, and bytes of their texts.
const (
	MaxEffects     = 1000
	MaxEffectBytes = 256 << 10
)
