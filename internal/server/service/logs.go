package service

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Logs sends what the detached commands of a sandbox wrote.
func (c *sandboxServer) Logs(m *sandboxv1.LogsRequest, to sandboxv1.SandboxService_LogsServer) error {
	r, err := wireconv.DecodeLogs(m)
	if err != nil {
		return err
	}
	sb, err := c.service.sandbox(to.Context(), r.Sandbox)
	if err != nil {
		return err
	}
	if err := to.SendHeader(nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(to.Context())
	defer cancel()
	defer context.AfterFunc(c.service.draining, cancel)()
	alive := sb.HasSupervisor
	if !r.Follow {
		alive = nil
	}
	err = outlog.Read(ctx, sb.Dir(), alive, func(record outlog.Record) error {
		if record.Opened || record.Over {
			return nil
		}
		return to.Send(logRecord(record))
	})
	if c.service.draining.Err() != nil {
		return errEnding()
	}
	return err
}

func logRecord(r outlog.Record) *sandboxv1.LogRecord {
	var code *int32
	if x := r.Exit; x != nil {
		code = new(int32(api.Exit{Code: x.Code, Signal: x.Signal, Reason: api.Reason(x.Reason)}.ExitCode()))
	}
	return wireconv.EncodeLogRecord(r, shownArgv(r.Argv), code)
}
