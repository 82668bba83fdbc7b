package wireconv

import (
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// NewSnapshot is the snapshot that CreateSnapshot asks for.
type NewSnapshot struct {
	Sandbox id.Sandbox
	Label   string // "": none
}

// DecodeCreateSnapshot reads a request.
func DecodeCreateSnapshot(r *sandboxv1.CreateSnapshotRequest) (NewSnapshot, error) {
	sb, err := SandboxID(r)
	return NewSnapshot{sb, r.GetLabel()}, err
}

// SnapshotRef names a snapshot of a sandbox.
type SnapshotRef struct {
	Sandbox id.Sandbox
	Ref     string
}

// SnapshotRequest is a request about one snapshot.
type SnapshotRequest interface {
	GetSandboxId() string
	GetSnapshot() string
}

// DecodeSnapshotRef reads a request about one snapshot.
func DecodeSnapshotRef(r SnapshotRequest) (SnapshotRef, error) {
	sb, err := SandboxID(r)
	if err == nil {
		err = required("snapshot", r.GetSnapshot())
	}
	return SnapshotRef{sb, r.GetSnapshot()}, err
}

// MaxForks is how many forks a request may ask for.
const MaxForks = 50

// Fork asks for sandboxes that begin with a state of another one.
type Fork struct {
	Sandbox    id.Sandbox
	Snapshot   string // "": the present state
	Names      []string
	Rules      *Rules // nil: those of the other sandbox
	AllowWider bool
	ExpiresIn  time.Duration // 0: with the other sandbox
}

// DecodeForkSandbox reads a request.
func DecodeForkSandbox(r *sandboxv1.ForkSandboxRequest) (f Fork, err error) {
	f = Fork{Snapshot: r.GetSnapshot(), Names: r.GetNames(), AllowWider: r.GetAllowWider()}
	if f.Snapshot == snapshot.Present {
		f.Snapshot = ""
	}
	if f.Sandbox, err = SandboxID(r); err != nil {
		return f, err
	}
	if len(f.Names) == 0 {
		return f, required("names", "")
	}
	if len(f.Names) > MaxForks {
		return f, errdefs.New(errdefs.Invalid, "names: %d are more than %d: make the others by another call", len(f.Names), MaxForks)
	}
	if r.GetRules() != nil {
		rules, err := requestRules(r.GetRules().GetPermissions())
		if err != nil {
			return f, err
		}
		f.Rules = &rules
	}
	f.ExpiresIn, err = requestDuration("expires_in", r.GetExpiresIn())
	return f, err
}

// State is a state of a sandbox.
type State struct {
	Sandbox id.Sandbox
	Ref     string // a snapshot; "" or "now": the present state; "source": the codebase
}

// Compare asks how two states differ.
type Compare struct {
	From, To  State
	Mount     string       // "": the workspace
	Paths     []vpath.Path // none: all
	NamesOnly bool
	Page      PageAfter
}

// DecodeCompareStates reads a request.
func DecodeCompareStates(r *sandboxv1.CompareStatesRequest) (c Compare, err error) {
	c = Compare{From: State{Ref: r.GetFromState()}, To: State{Ref: r.GetState()}, NamesOnly: r.GetNamesOnly()}
	if c.To.Sandbox, c.Mount, err = changesOf(r); err != nil {
		return c, err
	}
	c.From.Sandbox = c.To.Sandbox
	if from := r.GetFromSandboxId(); from != "" {
		if c.From.Sandbox, err = id.ParseSandbox(from); err != nil {
			return c, err
		}
	}
	if c.Paths, err = requestPaths(r.GetPaths()); err != nil {
		return c, err
	}
	c.Page, err = requestPageAfter(r.GetPageSize(), r.GetPageToken())
	return c, err
}
