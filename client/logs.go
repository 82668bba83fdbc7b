package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// LogRecord is the beginning of a detached command, a piece of its output, or its
// end.
type LogRecord struct {
	Time   time.Time
	ExecID string
	// Argv is set at the beginning of a command. Continued means that earlier output is no longer
	// kept, or was already sent.
	Argv      []string
	Continued bool
	Stderr    bool // Data is standard error
	Data      []byte
	ExitCode  *int  // set at the end of a command
	LostBytes int64 // of output that was lost because the disk was full
}

// Logs yields the output of the sandbox's detached commands, the oldest first. The sandbox need not
// be running. With follow it continues until the last of the commands has ended. It ends with the
// first error.
func (s *Sandbox) Logs(ctx context.Context, follow bool) iter.Seq2[LogRecord, error] {
	request := &sandboxv1.LogsRequest{SandboxId: s.ID, Follow: follow}
	return func(yield func(LogRecord, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := s.c.sandboxes.Logs(ctx, request)
		for err == nil {
			var r *sandboxv1.LogRecord
			if r, err = stream.Recv(); err == nil && !yield(logRecordFrom(r), nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(LogRecord{}, s.c.fail(ctx, "logs", err))
		}
	}
}

func logRecordFrom(r *sandboxv1.LogRecord) LogRecord {
	record := LogRecord{
		Time: timeFrom(r.Time), ExecID: r.ExecId, Argv: r.Argv, Continued: r.Continued,
		Stderr: r.Stream == sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR, Data: r.Data, LostBytes: r.LostBytes,
	}
	if r.ExitCode != nil {
		code := int(*r.ExitCode)
		record.ExitCode = &code
	}
	return record
}
