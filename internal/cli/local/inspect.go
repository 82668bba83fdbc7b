package local

import (
	"context"
	"errors"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/held"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Sandboxes lists the sandboxes.
func (b *Backend) Sandboxes(ctx context.Context, usage bool) ([]backend.Sandbox, error) {
	all, damaged := b.home.List()
	list := []backend.Sandbox{}
	errs := []error{damaged}
	for _, sb := range all {
		found := backend.Sandbox{Record: sb.Record(), Status: record.Stopped}
		c, err := client(ctx, sb)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if c != nil {
			found.Status = record.Running
		}
		if usage {
			if u, err := held.Of(sb); err == nil { // else the usage is unknown
				found.Usage = &u
			}
		}
		list = append(list, found)
	}
	return list, errors.Join(errs...)
}

// Inspect tells what a sandbox is.
func (b *Backend) Inspect(ctx context.Context, name string) (backend.Inspection, error) {
	sb, err := b.open(name)
	if err != nil {
		return backend.Inspection{}, err
	}
	in := backend.Inspection{
		Sandbox:   backend.Sandbox{Record: sb.Record(), Status: record.Stopped},
		Directory: record.HostPath(sb.Dir()), AuditLog: record.HostPath(sb.AuditPath()),
	}
	if in.Variables, err = variableNames(sb); err != nil {
		return in, err
	}
	err = ifRunning(ctx, sb, func(c *api.Client) error {
		st, err := c.Status(ctx)
		switch {
		case err == nil:
			in.Status, in.Running = record.Running, &st
		case !errdefs.Is(err, errdefs.Unavailable): // else it has just ended
			return err
		}
		return nil
	})
	return in, err
}

// variableNames are the names of the variables that a sandbox remembers.
func variableNames(sb *record.Sandbox) ([]record.HostPath, error) {
	remembered, err := sb.Variables()
	var names []record.HostPath
	for _, v := range remembered {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, record.HostPath(name))
	}
	return names, err
}
