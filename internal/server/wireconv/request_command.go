package wireconv

import (
	"cmp"
	"math"
	"time"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
)

// Exec asks for a command of a shell.
type Exec struct {
	Sandbox id.Sandbox
	Command string
	Stdin   []byte
	Env     map[string]string
	Dir     string        // "": the workspace; relative: below it
	Timeout time.Duration // 0: the server's default
	Detach  bool
	// Checkpoint asks for a snapshot before the command.
	Checkpoint bool
}

// DecodeExec reads a request.
func DecodeExec(r *sandboxv1.ExecRequest) (x Exec, err error) {
	x = Exec{Command: r.GetCommand(), Stdin: []byte(r.GetStdin()), Env: r.GetEnv(), Dir: r.GetWorkdir(), Detach: r.GetDetach(), Checkpoint: r.GetCheckpoint()}
	if x.Sandbox, err = SandboxID(r); err != nil {
		return x, err
	}
	if err := required("command", x.Command); err != nil {
		return x, err
	}
	if raw := r.GetStdinBytes(); len(raw) > 0 {
		if len(x.Stdin) > 0 {
			return x, errdefs.New(errdefs.Invalid, "stdin_bytes: set either stdin or stdin_bytes, not both")
		}
		x.Stdin = raw
	}
	x.Timeout, err = requestDuration("timeout", r.GetTimeout())
	return x, err
}

// NewSession is the session that CreateSession asks for.
type NewSession struct {
	Sandbox id.Sandbox
	Shell   string // "": the default
	Env     map[string]string
}

// DecodeCreateSession reads a request.
func DecodeCreateSession(r *sandboxv1.CreateSessionRequest) (NewSession, error) {
	sb, err := SandboxID(r)
	return NewSession{sb, r.GetShell(), r.GetEnv()}, err
}

// SessionExec asks for a command of a session's shell.
type SessionExec struct {
	Session id.Session
	Command string
	Timeout time.Duration // 0: the server's default
	Detach  bool
}

// DecodeSessionExec reads a request.
func DecodeSessionExec(r *sandboxv1.SessionExecRequest) (x SessionExec, err error) {
	x = SessionExec{Command: r.GetCommand(), Detach: r.GetDetach()}
	if x.Session, err = SessionID(r); err != nil {
		return x, err
	}
	if err := required("command", x.Command); err != nil {
		return x, err
	}
	x.Timeout, err = requestDuration("timeout", r.GetTimeout())
	return x, err
}

// WindowSize is the size of a terminal.
type WindowSize struct{ Rows, Columns uint16 }

// DecodeWindowSize reads a size, field for the message of the error.
func DecodeWindowSize(field string, m *sandboxv1.AttachRequest_WindowSize) (WindowSize, error) {
	err := cmp.Or(notAbove(field+".rows", m.GetRows(), math.MaxUint16), notAbove(field+".columns", m.GetColumns(), math.MaxUint16))
	return WindowSize{uint16(m.GetRows()), uint16(m.GetColumns())}, err
}

// AttachStart asks for a program whose streams are those of the call.
type AttachStart struct {
	Sandbox     id.Sandbox
	Argv        []string
	Env         map[string]string
	Dir         string        // as in Exec
	Timeout     time.Duration // 0: the longest that the server allows
	Terminal    *WindowSize   // nil: none
	Detach      bool
	RememberEnv map[string]string
	Checkpoint  bool // as in Exec
}

// DecodeAttachStart reads the first message of an Attach call.
func DecodeAttachStart(m *sandboxv1.AttachRequest_Start) (a AttachStart, err error) {
	a = AttachStart{
		Argv: m.GetArgv(), Env: m.GetEnv(), Dir: m.GetWorkdir(), Detach: m.GetDetach(), RememberEnv: m.GetRememberEnv(), Checkpoint: m.GetCheckpoint(),
	}
	if a.Sandbox, err = SandboxID(m); err != nil {
		return a, err
	}
	if len(a.Argv) == 0 {
		return a, required("argv", "")
	}
	if m.GetTerminal() != nil {
		size, err := DecodeWindowSize("terminal", m.GetTerminal())
		if err != nil {
			return a, err
		}
		a.Terminal = &size
	}
	a.Timeout, err = requestDuration("timeout", m.GetTimeout())
	return a, err
}

// AttachResume asks for a detached command.
type AttachResume struct {
	Sandbox id.Sandbox
	ExecID  string
	Offsets [2]int64 // bytes of stdout and stderr that the client has
}

// DecodeAttachResume reads the first message of an Attach call.
func DecodeAttachResume(m *sandboxv1.AttachRequest_Resume) (a AttachResume, err error) {
	a = AttachResume{ExecID: m.GetExecId(), Offsets: [2]int64{m.GetStdoutOffset(), m.GetStderrOffset()}}
	if a.Sandbox, err = SandboxID(m); err != nil {
		return a, err
	}
	return a, cmp.Or(
		required("exec_id", a.ExecID),
		notNegative("stdout_offset", a.Offsets[0]),
		notNegative("stderr_offset", a.Offsets[1]),
	)
}

// maxSignal is the last signal of signal(7), SIGRTMAX.
const maxSignal = 64

// DecodeSignal reads the number of a signal.
func DecodeSignal(number int32) (unix.Signal, error) {
	if number < 1 || number > maxSignal {
		return 0, errdefs.New(errdefs.Invalid, "signal: unknown value %d (want 1 to %d)", number, maxSignal)
	}
	return unix.Signal(number), nil
}
