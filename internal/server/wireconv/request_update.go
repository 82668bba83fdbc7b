package wireconv

import (
	"slices"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
)

// The names of the lists that UpdateSandbox replaces.
const (
	ListScratch   = "scratch"
	ListSecrets   = "secrets"
	ListNetLimits = "net_limits"
	ListPublish   = "publish"
)

// UpdateSandbox asks for other settings of a sandbox.
type UpdateSandbox struct {
	Sandbox   id.Sandbox
	Limits    *record.Limits // nil: unchanged
	Lists     []string       // names of those that are replaced
	Scratch   []scratch.Path
	Secrets   []string
	NetLimits string // as hostlist.ParseLimits returns them
	Publish   []published.Port
	AskGiven  bool
	Ask       *record.Ask // nil: refusals do not wait
}

// Replaces reports whether a list is replaced.
func (u *UpdateSandbox) Replaces(list string) bool { return slices.Contains(u.Lists, list) }

// DecodeUpdateSandbox reads a request.
func DecodeUpdateSandbox(r *sandboxv1.UpdateSandboxRequest) (u UpdateSandbox, err error) {
	u.Secrets = r.GetSecrets()
	if u.Sandbox, err = SandboxID(r); err != nil {
		return u, err
	}
	if u.Lists, err = replacedLists(r); err != nil {
		return u, err
	}
	if r.GetResources() != nil {
		limits, err := requestLimits(r.GetResources())
		if err != nil {
			return u, err
		}
		u.Limits = &limits
	}
	u.AskGiven = r.GetAskTimeout() != nil
	if u.Ask, err = requestAskTimeout(r.GetAskTimeout()); err != nil {
		return u, err
	}
	if u.Limits == nil && len(u.Lists) == 0 && !u.AskGiven {
		return u, errdefs.New(errdefs.Invalid, "one of resources, scratch, secrets, net_limits, publish, ask_timeout or clear is required")
	}
	if u.NetLimits, err = requestNetLimits(r.GetNetLimits()); err != nil {
		return u, err
	}
	if u.Publish, err = published.Parse(r.GetPublish()); err != nil {
		return u, errdefs.New(errdefs.Invalid, "publish: %w", err)
	}
	u.Scratch, err = requestScratch(r.GetScratch())
	return u, err
}

// replacedLists returns the names of the lists that a request gives or clears. Errors: Invalid.
func replacedLists(r *sandboxv1.UpdateSandboxRequest) ([]string, error) {
	var replaced []string
	for _, list := range []struct {
		name string
		sent []string
	}{
		{ListScratch, r.GetScratch()}, {ListSecrets, r.GetSecrets()}, {ListNetLimits, r.GetNetLimits()}, {ListPublish, r.GetPublish()},
	} {
		isCleared := slices.Contains(r.GetClear(), list.name)
		switch {
		case isCleared && len(list.sent) > 0:
			return nil, errdefs.New(errdefs.Invalid, "clear: %s is given, too", list.name)
		case isCleared || len(list.sent) > 0:
			replaced = append(replaced, list.name)
		}
	}
	for _, name := range r.GetClear() {
		if !slices.Contains(replaced, name) {
			return nil, errdefs.New(errdefs.Invalid, "clear: %s: want scratch, secrets, net_limits or publish", vpath.Quote(name))
		}
	}
	return replaced, nil
}
