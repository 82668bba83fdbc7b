package client

import (
	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Effects are the operations that the policy refused to a command and the changes that it made,
// with all processes that it started, up to its end. Later effects of processes that it left behind
// are only in the audit log.
type Effects struct {
	// ExecID is the id of the command in the audit log; empty if it could not be started.
	ExecID string
	// Denied are the refused operations, in the order of the first attempt; the list may be cut.
	// DeniedCount is the number of refusals, repeats included.
	Denied      []Denial
	DeniedCount int64
	// Changed are the net changes of the sandbox's views, by mount and path; the list may be cut,
	// Diff has all. ChangedCount is the number of changes.
	Changed      []FileChange
	ChangedCount int64
	// SyncHeld means that only Apply brings the sandbox's changes into its codebase, because a
	// token without the scope apply ran a command in it.
	SyncHeld bool
	// Keep is what the end of the command applied without a review, because rules with Keep say so;
	// nil if no mount has such a rule.
	Keep *KeepResult
}

// KeepResult is what the end of a command did with the changes that rules with Keep match. What was
// not applied stays in the sandbox; the end of the next command tries again. The lists may be cut.
type KeepResult struct {
	Kept         []KeptPath // applied
	KeptCount    int64
	NotKept      []KeptPath // they wait for Apply
	NotKeptCount int64
	// Note is why nothing was tried, or not everything; "" if everything was tried.
	Note string
}

// KeptPath is a path that a rule with Keep matches.
type KeptPath struct {
	Mount  string
	Path   string
	Keys   []string // the only ones of the file that were applied, or that wait; none: the whole file
	Reason string   // why it waits; "" if it was applied
}

// Denial is an operation that the policy refused to a command.
type Denial struct {
	Mount      string // name of the mount in which Path is; "": the workspace
	Path       string
	Operation  string     // "open", "unlink", …
	Permission Permission // of the path
	Rule       string     // pattern of the rule that decided, as it was written; "": no rule
	RuleIndex  int        // of that rule in the sandbox's rules, from 0; -1: no rule
	PID        int        // as the host sees it; 0: unknown
	Program    string
	Count      int64  // number of times
	Lock       string // whose lock refused it, as "a lock of the sandbox NAME"; "": no lock
}

// FileChange is a change of a path of a sandbox's view.
type FileChange struct {
	Mount string // name of the mount in which the paths are; "": the workspace
	Path  string
	Kind  ChangeKind
	// OldPath is the previous path, if it was renamed. A renamed directory includes everything
	// below it.
	OldPath string
}

// ending is a message with the end of a command.
type ending interface {
	GetExecId() string
	GetDenied() []*sandboxv1.Denial
	GetDeniedCount() int64
	GetChanged() []*sandboxv1.FileChange
	GetChangedCount() int64
	GetSyncHeld() bool
	GetKeep() *sandboxv1.KeepResult
}

func effectsFrom(m ending) Effects {
	e := Effects{ExecID: m.GetExecId(), DeniedCount: m.GetDeniedCount(), ChangedCount: m.GetChangedCount(), SyncHeld: m.GetSyncHeld(), Keep: keepFrom(m.GetKeep())}
	for _, d := range m.GetDenied() {
		e.Denied = append(e.Denied, Denial{
			Path: vpath.DecodeText(d.Path), Operation: d.Operation, Permission: permissionFrom(d.Permission), Rule: d.Rule, RuleIndex: int(d.RuleIndex),
			PID: int(d.Pid), Program: vpath.DecodeText(d.Program), Count: d.Count, Mount: d.Mount, Lock: vpath.DecodeText(d.Lock),
		})
	}
	for _, c := range m.GetChanged() {
		e.Changed = append(e.Changed, fileChangeFrom(c))
	}
	return e
}

func fileChangeFrom(c *sandboxv1.FileChange) FileChange {
	return FileChange{Mount: c.Mount, Path: vpath.DecodeText(c.Path), Kind: ChangeKind(word("CHANGE_KIND_", c.Kind)), OldPath: vpath.DecodeText(c.OldPath)}
}

func keepFrom(m *sandboxv1.KeepResult) *KeepResult {
	if m == nil {
		return nil
	}
	paths := func(sent []*sandboxv1.KeptPath) []KeptPath {
		var list []KeptPath
		for _, p := range sent {
			list = append(list, KeptPath{Mount: p.Mount, Path: vpath.DecodeText(p.Path), Keys: p.Keys, Reason: p.Reason})
		}
		return list
	}
	return &KeepResult{Kept: paths(m.Kept), KeptCount: m.KeptCount, NotKept: paths(m.NotKept), NotKeptCount: m.NotKeptCount, Note: m.Note}
}
