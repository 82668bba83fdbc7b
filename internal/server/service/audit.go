package service

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/fault"
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
			return fault.New(fault.Invalid, "events: %q is no kind of event", kind)
		}
		wanted[kind] = true
	}
	var since time.Time
	if r.Since != nil {
		if err := r.Since.CheckValid(); err != nil {
			return fault.New(fault.Invalid, "since: is no time")
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
		return to.Send(wireEvent(record, kind))
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

func wireEvent(record audit.Record, kind string) *sandboxv1.AuditEvent {
	e := &sandboxv1.AuditEvent{Seq: record.Seq, Time: timestamppb.New(record.Time), Event: kind}
	e.Record = strings.ToValidUTF8(string(record.Raw), "\uFFFD") // what is no record may hold anything
	if proto.Size(e) > maxResultBytes {
		e.Record = ""
	}
	return e
}
