package wireconv

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// Ending is how a command ended. Its paths are encoded for the API.
type Ending struct {
	Code     int
	ExecID   string
	Duration time.Duration
	// Conflicts may be cut; ConflictCount is their number.
	Conflicts     []string
	ConflictCount int64
	Effects       api.Effects
	SyncHeld      bool
	Keep          *Keep // nil: no mount has a rule with apply: keep
}

// EncodeResult returns the result of a command, without its output.
func EncodeResult(e Ending) *sandboxv1.ExecResult {
	return &sandboxv1.ExecResult{
		ExitCode: int32(e.Code), Duration: durationpb.New(e.Duration), ExecId: e.ExecID,
		Conflicts: e.Conflicts, ConflictCount: e.ConflictCount,
		Denied: encodeDenied(e.Effects.Denied), DeniedCount: e.Effects.DeniedCount,
		Changed: EncodeChanged(e.Effects.Changed), ChangedCount: e.Effects.ChangedCount, SyncHeld: e.SyncHeld, Keep: encodeKeep(e.Keep),
	}
}

// EncodeEnding returns the last message of a command's stream.
func EncodeEnding(e Ending) *sandboxv1.ExecOutput {
	code := int32(e.Code)
	return &sandboxv1.ExecOutput{
		ExitCode: &code, ExecId: e.ExecID, Conflicts: e.Conflicts, ConflictCount: e.ConflictCount,
		Denied: encodeDenied(e.Effects.Denied), DeniedCount: e.Effects.DeniedCount,
		Changed: EncodeChanged(e.Effects.Changed), ChangedCount: e.Effects.ChangedCount, SyncHeld: e.SyncHeld, Keep: encodeKeep(e.Keep),
	}
}

// DecodeEnding is the reverse of EncodeEnding.
func DecodeEnding(m *sandboxv1.ExecOutput) Ending {
	return Ending{
		Code: int(m.GetExitCode()), ExecID: m.GetExecId(), Conflicts: m.GetConflicts(), ConflictCount: m.GetConflictCount(),
		Effects: api.Effects{
			Denied: decodeDenied(m.GetDenied()), DeniedCount: m.GetDeniedCount(),
			Changed: decodeChanged(m.GetChanged()), ChangedCount: m.GetChangedCount(),
		},
		SyncHeld: m.GetSyncHeld(), Keep: decodeKeep(m.GetKeep()),
	}
}

// encodeDenied returns refusals. It returns a preset's pattern as it was written.
func encodeDenied(list []api.Denied) []*sandboxv1.Denial {
	var wire []*sandboxv1.Denial
	for _, d := range list {
		wire = append(wire, &sandboxv1.Denial{
			Path: d.Path, Operation: d.Operation, Permission: Permission.Encode(d.Permission),
			Rule: secretname.Written(d.Rule), RuleIndex: int32(d.RuleIndex), Pid: int32(d.PID), Program: d.Program, Count: d.Count, Mount: d.Mount, Lock: d.Lock,
		})
	}
	return wire
}

func decodeDenied(sent []*sandboxv1.Denial) []api.Denied {
	var list []api.Denied
	for _, d := range sent {
		list = append(list, api.Denied{
			Path: d.Path, Operation: d.Operation, Permission: Permission.Decode(d.Permission),
			Rule: d.Rule, RuleIndex: int(d.RuleIndex), PID: int(d.Pid), Program: d.Program, Count: d.Count, Mount: d.Mount, Lock: d.Lock,
		})
	}
	return list
}

// EncodeChanged returns changes of a view.
func EncodeChanged(list []api.Changed) []*sandboxv1.FileChange {
	var wire []*sandboxv1.FileChange
	for _, c := range list {
		wire = append(wire, &sandboxv1.FileChange{Mount: c.Mount, Path: c.Path, Kind: ChangeKind.Encode(c.Kind), OldPath: c.From})
	}
	return wire
}

func decodeChanged(sent []*sandboxv1.FileChange) []api.Changed {
	var list []api.Changed
	for _, c := range sent {
		list = append(list, api.Changed{Mount: c.Mount, Path: c.Path, Kind: ChangeKind.Decode(c.Kind), From: c.OldPath})
	}
	return list
}

// EncodeDetached returns a detached command. exitCode is absent while it runs.
func EncodeDetached(x api.DetachedExec, argv []string, exitCode *int32) *sandboxv1.DetachedExec {
	return &sandboxv1.DetachedExec{ExecId: x.ID, SessionId: x.Session, StartedAt: encodeTime(x.StartedAt), Argv: argv, ExitCode: exitCode}
}

// EncodeLogRecord returns a record of the output of detached commands. The end of a command has
// only the exit code.
func EncodeLogRecord(r outlog.Record, argv []string, exitCode *int32) *sandboxv1.LogRecord {
	return &sandboxv1.LogRecord{
		Time: timestamppb.New(r.Time), ExecId: validText(r.Exec), Argv: argv, Continued: r.Again,
		Stream: Stream.Encode(r.Stream), Data: r.Data, ExitCode: exitCode, LostBytes: r.LostBytes,
	}
}

// DecodeLogRecord is the reverse of EncodeLogRecord. The exit has only the code.
func DecodeLogRecord(m *sandboxv1.LogRecord) outlog.Record {
	r := outlog.Record{
		Time: decodeTime(m.Time), Exec: m.ExecId, Again: m.Continued, Stream: Stream.Decode(m.Stream), Data: m.Data, LostBytes: m.LostBytes,
	}
	for _, arg := range m.Argv {
		r.Argv = append(r.Argv, []byte(arg))
	}
	if m.ExitCode != nil {
		r.Exit = &outlog.Exit{Code: int(*m.ExitCode)}
	}
	return r
}

// EncodeAuditEvent returns a record of the audit log with its line, which a client reads with
// audit.ReadFrom. A malformed line may contain any bytes.
func EncodeAuditEvent(r audit.Record) *sandboxv1.AuditEvent {
	return &sandboxv1.AuditEvent{
		Seq: r.Seq, Time: timestamppb.New(r.Time), Event: string(r.Event.Kind()), Record: validText(string(r.Raw)),
	}
}
