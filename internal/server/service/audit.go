package service

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Audit sends a sandbox's audit events, and with follow those to come.
func (c *sandboxServer) Audit(r *sandboxv1.AuditRequest, to sandboxv1.SandboxService_AuditServer) error {
	ctx := to.Context()
	sb, err := c.service.sandbox(ctx, r.SandboxId)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, kind := range r.Events {
		if !audit.IsKind(audit.Kind(kind)) {
			return errdefs.New(errdefs.Invalid, "events: %q is no kind of event", kind)
		}
		wanted[kind] = true
	}
	var since time.Time
	if r.Since != nil {
		if err := r.Since.CheckValid(); err != nil {
			return errdefs.New(errdefs.Invalid, "since: is no time")
		}
		since = r.Since.AsTime()
	}
	if err := to.SendHeader(nil); err != nil {
		return err
	}
	send := func(record audit.Record) error {
		kind := string(record.Event.Kind())
		if record.Seq <= r.AfterSeq || record.Time.Before(since) || len(wanted) > 0 && !wanted[kind] {
			return nil
		}
		return to.Send(wireEvent(record))
	}
	if r.Follow {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.service.draining, cancel)()
		err := audit.Follow(ctx, sb.AuditPath(), send)
		if c.service.draining.Err() != nil {
			return errEnding()
		}
		return err
	}
	return audit.Read(sb.AuditPath(), send)
}

func wireEvent(record audit.Record) *sandboxv1.AuditEvent {
	e := wireconv.EncodeAuditEvent(record)
	if proto.Size(e) > maxResultBytes {
		e.Record = ""
	}
	return e
}
