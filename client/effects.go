package client

import (
	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Effects are what the policy refused a command and what it changed, from its
// start to its end, it and all that it started. What processes that it left
// behind do later is in the audit log alone.
type Effects struct {
	// ExecID is that of the command's records in the audit log; empty for one that
	// could not be started.
	ExecID string
	// Denied is what was refused, in the order in which it was tried first, as much
	// as there was room for. DeniedCount is how many refusals there were, repeats
	// included.
	Denied      []Denial
	DeniedCount int64
	// Changed is what became of the sandbox's view, net and by path, as much as
	// there was room for; Diff has all. ChangedCount is how many changes there were.
	Changed      []FileChange
	ChangedCount int64
	// SyncHeld says that the sandbox keeps its changes for Apply: a token without
	// the scope apply has run a command in it.
	SyncHeld bool
}

// Denial is what the policy refused a command.
type Denial struct {
	Path       string
	Operation  string     // what was tried: "open", "unlink", …
	Permission Permission // what the path has
	Rule       string     // pattern of the rule that decided, as it was written; "": none did
	RuleIndex  int        // of that rule among the sandbox's, from 0; -1: none
	PID        int        // as the host sees it; 0: not known
	Program    string
	Count      int64 // how often
}

// FileChange is what became of a path of a sandbox's view.
type FileChange struct {
	Path string
	Kind ChangeKind
	// OldPath is where it was, if it was renamed. All below a renamed directory
	// was, too.
	OldPath string
}

// ending is a message that says how a command ended.
type ending interface {
	GetExecId() string
	GetDenied() []*sandboxv1.Denial
	GetDeniedCount() int64
	GetChanged() []*sandboxv1.FileChange
	GetChangedCount() int64
	GetSyncHeld() bool
}

func effectsFrom(m ending) Effects {
	e := Effects{ExecID: m.GetExecId(), DeniedCount: m.GetDeniedCount(), ChangedCount: m.GetChangedCount(), SyncHeld: m.GetSyncHeld()}
	for _, d := range m.GetDenied() {
		e.Denied = append(e.Denied, Denial{
			Path: vpath.DecodeText(d.Path), Operation: d.Operation, Permission: permissionFrom(d.Permission), Rule: d.Rule, RuleIndex: int(d.RuleIndex),
			PID: int(d.Pid), Program: vpath.DecodeText(d.Program), Count: d.Count,
		})
	}
	for _, c := range m.GetChanged() {
		e.Changed = append(e.Changed, fileChangeFrom(c))
	}
	return e
}

func fileChangeFrom(c *sandboxv1.FileChange) FileChange {
	return FileChange{Path: vpath.DecodeText(c.Path), Kind: ChangeKind(word("CHANGE_KIND_", c.Kind)), OldPath: vpath.DecodeText(c.OldPath)}
}
