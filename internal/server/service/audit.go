package service

import (
	"context"

	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Audit sends a sandbox's audit events; with follow also new ones.
func (c *sandboxServer) Audit(m *sandboxv1.AuditRequest, to sandboxv1.SandboxService_AuditServer) error {
	ctx := to.Context()
	r, err := wireconv.DecodeAudit(m)
	if err != nil {
		return err
	}
	sb, err := c.service.sandbox(ctx, r.Sandbox)
	if err != nil {
		return err
	}
	if err := to.SendHeader(nil); err != nil {
		return err
	}
	send := func(record audit.Record) error {
		if record.Seq <= r.AfterSeq || record.Time.Before(r.Since) || len(r.Kinds) > 0 && !r.Kinds[record.Event.Kind()] {
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
