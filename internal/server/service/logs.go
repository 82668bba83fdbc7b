package service

import (
	"context"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/outlog"
	"github.com/agentfense/agentfense/internal/supervise"
)

// Logs sends what the detached commands of a sandbox wrote.
func (c *sandboxServer) Logs(r *sandboxv1.LogsRequest, to sandboxv1.SandboxService_LogsServer) error {
	sb, err := c.service.sandbox(to.Context(), r.SandboxId)
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
		return to.Send(wireLogRecord(record))
	})
	if c.service.draining.Err() != nil {
		return errEnding()
	}
	return err
}

// streamOf are the streams on the wire.
var streamOf = map[outlog.Stream]sandboxv1.ExecOutput_OutputType{
	outlog.Stdout: sandboxv1.ExecOutput_OUTPUT_TYPE_STDOUT,
	outlog.Stderr: sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR,
}

func wireLogRecord(r outlog.Record) *sandboxv1.LogRecord {
	w := &sandboxv1.LogRecord{
		Time: timestamppb.New(r.Time), ExecId: strings.ToValidUTF8(r.Exec, "\uFFFD"), Argv: wireArgv(r.Argv), Continued: r.Again,
		Stream: streamOf[r.Stream], Data: r.Data, LostBytes: r.LostBytes,
	}
	if x := r.Exit; x != nil {
		code := codeOfEnd(supervise.Exit{Code: x.Code, Signal: x.Signal, Reason: supervise.Reason(x.Reason)})
		w.ExitCode = &code
	}
	return w
}
