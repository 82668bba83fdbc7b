package api

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/fdmessage"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// messages are those of control connections. The largest names what an apply or
// a discard brought over, all at once: 120 bytes for each path and more for
// long names, a million of them with room to spare. At most three descriptors
// travel with one: the pipes of an exec.
var messages = fdmessage.Format{Name: "control message", MaxBytes: 512 << 20, MaxFiles: 3}

// operation names what a client asks for. A connection carries one operation;
// that of an exec, of a session or not, stays open until the command has ended.
type operation string

// What a client asks of a supervisor.
const (
	OpExec   operation = "exec"   // run a command; pipes travel with it
	OpSignal operation = "signal" // for the exec of this connection
	OpStatus operation = "status" // what runs
	OpPolicy operation = "policy" // replace the rules of the live view
	OpHosts  operation = "hosts"  // read the hosts of the record again
	OpGrants operation = "grants" // read the rules of the record again
	OpJoin   operation = "join"   // stay until the connection ends
	OpDrop   operation = "drop"   // forget entries of the delta
	OpDelta  operation = "delta"  // whether the delta holds changes
	OpRenew  operation = "renew"  // look at paths of the source again
	OpFreeze operation = "freeze" // freeze the deltas
	OpKeep   operation = "keep"   // stay when the last command has ended
	OpStop   operation = "stop"   // end every command and go
	OpStats  operation = "stats"  // what is used

	// OpSecrets asks whether the network has the values of the secrets. With SecretFiles
	// descriptors, a pipe and a file of certificates, it hands them over.
	OpSecrets operation = "secrets"

	OpLearn operation = "learn" // record how the views are used
	OpUsed  operation = "used"  // what was recorded

	OpWatch operation = "watch" // the view; answers come until the connection ends

	OpLock   operation = "lock"   // paths; if it may wait, a second reply tells that they are locked
	OpUnlock operation = "unlock" // paths
	OpLocks  operation = "locks"  // follow the locks of other sandboxes: see LocksChanged
	OpHeld   operation = "held"   // the locks that the sandbox may know of
	OpPost   operation = "post"   // a message on the board

	OpAsks      operation = "asks"       // what waits for an answer
	OpWatchAsks operation = "watch_asks" // the same with each change, until the connection ends
	OpAnswer    operation = "answer"     // an ask
	OpAsk       operation = "ask"        // for a path or a host; a second reply has the decision

	OpExecs    operation = "execs"     // the detached commands
	OpAttach   operation = "attach"    // to one of them; three pipes travel with it
	OpResize   operation = "resize"    // the terminal of this connection's detached command
	OpEndInput operation = "end_input" // of this connection's detached command

	OpOpenSession  operation = "open_session"
	OpSessions     operation = "sessions"
	OpSessionExec  operation = "session_exec" // two pipes travel with it
	OpCloseSession operation = "close_session"
)

// Request is what a client says.
type Request struct {
	Op     operation     `json:"op"`
	Exec   *Command      `json:"exec,omitempty"`
	Signal int           `json:"signal,omitempty"`
	Rules  []policy.Rule `json:"rules,omitempty"`

	Versions []changes.Version `json:"versions,omitempty"`
	Mount    string            `json:"mount,omitempty"` // whose delta it is about; empty: the workspace's
	Paths    [][]byte          `json:"paths,omitempty"` // of a renewal
	Session  *SessionRequest   `json:"session,omitempty"`
	Attach   *AttachRequest    `json:"attach,omitempty"`
	Size     *windowSize       `json:"size,omitempty"`
	Watch    *WatchRequest     `json:"watch,omitempty"`
	Answer   *Answer           `json:"answer,omitempty"`
	Ask      *Ask              `json:"ask,omitempty"`
	Lock     *LockRequest      `json:"lock,omitempty"`
	Post     *board.Draft      `json:"post,omitempty"`
	// Local says that no server asks: a sandbox that a server manages refuses.
	Local bool `json:"local,omitempty"`
}

// Reply is what the supervisor answers.
type Reply struct {
	Started  *Started       `json:"started,omitempty"`
	Exited   *Exit          `json:"exited,omitempty"`
	Status   *Status        `json:"status,omitempty"`
	Stats    *Stats         `json:"stats,omitempty"`
	Stale    [][]byte       `json:"stale,omitempty"` // paths of a drop
	Sessions []Session      `json:"sessions,omitempty"`
	Execs    []DetachedExec `json:"execs,omitempty"`
	Watched  *Watched       `json:"watched,omitempty"`
	Asks     []Ask          `json:"asks,omitempty"`
	Decision *Decision      `json:"decision,omitempty"` // on an ask
	Changed  bool           `json:"changed,omitempty"`  // of the delta
	// Layers are the frozen layers by the name of the mount, "" for the workspace.
	Layers map[string]string `json:"layers,omitempty"`
	Used   []usedJSON        `json:"used,omitempty"`
	OK     bool              `json:"ok,omitempty"`
	Locks  []board.Entry     `json:"locks,omitempty"`
	// Posted is the number of a message.
	Posted uint64 `json:"posted,omitempty"`
	// HasSecrets says that the network has the values of the secrets.
	HasSecrets bool     `json:"has_secrets,omitempty"`
	Error      *failure `json:"error,omitempty"`
}

// Started says that the command runs; a terminal's master travels with it.
type Started struct {
	PID int `json:"pid,omitempty"`
	// ID and LostBytes are of a detached command: its id, and how much of its output
	// is kept no longer.
	ID        string `json:"id,omitempty"`
	LostBytes int64  `json:"lost_bytes,omitempty"`
}

// failure carries a fault across the socket.
type failure struct {
	Kind   errdefs.Kind   `json:"kind"`
	Text   string         `json:"text"`
	Reason errdefs.Reason `json:"reason,omitempty"`
	// NotFound and NotExecutable tell a command that could not be started
	// from a sandbox that could not be made.
	NotFound      bool `json:"not_found,omitempty"`
	NotExecutable bool `json:"not_executable,omitempty"`
}

// Command is what an exec runs.
type Command struct {
	Argv    []string
	Env     []string      // complete, KEY=VALUE
	Dir     string        // inside; "" = the workspace
	TTY     bool          // a terminal instead of three pipes
	Rows    uint16        // of the terminal
	Columns uint16        // of the terminal
	Timeout time.Duration // 0 = none
	// Detached lets the command go on when the client leaves; its output goes into
	// the sandbox's output log.
	Detached bool
	// Kept gives the command streams, or a terminal, of the supervisor's own.
	// Clients attach to them with pipes; the end of its output is kept.
	Kept    bool
	NoInput bool // of a kept one: its input is at its end at once
}

// wireCommand is Command with its strings as bytes, because a JSON string
// loses what is not UTF-8.
type wireCommand struct {
	Argv     [][]byte      `json:"argv"`
	Env      [][]byte      `json:"env,omitempty"`
	Dir      []byte        `json:"dir,omitempty"`
	TTY      bool          `json:"tty,omitempty"`
	Rows     uint16        `json:"rows,omitempty"`
	Columns  uint16        `json:"columns,omitempty"`
	Timeout  time.Duration `json:"timeout_ns,omitempty"`
	Detached bool          `json:"detached,omitempty"`
	Kept     bool          `json:"kept,omitempty"`
	NoInput  bool          `json:"no_input,omitempty"`
}

// MarshalJSON keeps every byte of the command line.
func (c Command) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireCommand{
		Argv: ToBytes(c.Argv), Env: ToBytes(c.Env), Dir: []byte(c.Dir),
		TTY: c.TTY, Rows: c.Rows, Columns: c.Columns, Timeout: c.Timeout, Detached: c.Detached,
		Kept: c.Kept, NoInput: c.NoInput,
	})
}

// UnmarshalJSON reverses MarshalJSON.
func (c *Command) UnmarshalJSON(data []byte) error {
	var w wireCommand
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*c = Command{
		Argv: toStrings(w.Argv), Env: toStrings(w.Env), Dir: string(w.Dir),
		TTY: w.TTY, Rows: w.Rows, Columns: w.Columns, Timeout: w.Timeout, Detached: w.Detached,
		Kept: w.Kept, NoInput: w.NoInput,
	}
	return nil
}

// ToBytes is in, as JSON can carry it: its strings need not be UTF-8.
func ToBytes[S ~string](in []S) [][]byte {
	out := make([][]byte, len(in))
	for i, s := range in {
		out[i] = []byte(s)
	}
	return out
}

func toStrings(in [][]byte) []string {
	out := make([]string, len(in))
	for i, b := range in {
		out[i] = string(b)
	}
	return out
}

// ToPaths checks the paths of a request. Errors: Invalid.
func ToPaths(in [][]byte) ([]vpath.Path, error) {
	out := make([]vpath.Path, len(in))
	for i, b := range in {
		p, err := vpath.Parse(string(b))
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}

// Reason says why a command ended other than by itself.
type Reason string

// The reasons. None means that the command ended by itself.
const (
	ReasonNone        Reason = ""
	ReasonTimeout     Reason = "timeout"
	ReasonOutOfMemory Reason = "out_of_memory"
	ReasonStopped     Reason = "stopped" // the sandbox was stopped
	ReasonClosed      Reason = "closed"  // its session was closed, or broke
)

// Exit is how a command ended.
type Exit struct {
	// ID is that of the command's records in the audit log; empty for one that
	// did not run.
	ID          string        `json:"id,omitempty"`
	Code        int           `json:"code"`
	Signal      int           `json:"signal,omitempty"` // non-zero: ended by this signal
	Reason      Reason        `json:"reason,omitempty"`
	Duration    time.Duration `json:"duration_ns"`
	UserTime    time.Duration `json:"user_ns"`
	SystemTime  time.Duration `json:"system_ns"`
	MaxRSSBytes int64         `json:"max_rss_bytes"`
	// SessionClosed says that the shell of the command's session ended, too.
	// Code and Signal are the shell's then.
	SessionClosed bool `json:"session_closed,omitempty"`
	// Untouched says that the delta was empty then: there is nothing to carry
	// over. Without it there may be.
	Untouched bool `json:"untouched,omitempty"`
	Effects
}

// Status is what a live supervisor tells of itself.
type Status struct {
	PID       int       `json:"pid"`
	InitPID   int       `json:"init_pid"` // host pid of the sandbox's PID 1
	StartedAt time.Time `json:"started_at"`
	Execs     int       `json:"execs"`
	Keep      bool      `json:"keep"`
	// Enforced lists what confines the sandbox, as the audit log's sandbox_started.
	Enforced []string `json:"enforced,omitempty"`
}

// Conn is one control connection: JSON messages with descriptors.
type Conn struct {
	*net.UnixConn
}

// Send sends one message, with descriptors.
func (c Conn) Send(message any, files ...*os.File) error {
	return messages.Send(c.UnixConn, message, files...)
}

// Receive reads one message into message and returns the descriptors that
// came with it. The caller closes them, also on an error.
func (c Conn) Receive(message any) ([]*os.File, error) { return messages.Receive(c.UnixConn, message) }

// CloseAll closes the files.
func CloseAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// CommandError says that the sandbox is there but the command could not be
// started in it.
type CommandError struct {
	Text          string
	NotExecutable bool // else it was not found
}

// Error returns the reason.
func (e *CommandError) Error() string { return e.Text }

// FailureOf is err as it travels, nil for nil.
func FailureOf(err error) *failure {
	f := &failure{Kind: errdefs.KindOf(err), Text: err.Error(), Reason: errdefs.ReasonOf(err)}
	if ce := (*CommandError)(nil); errors.As(err, &ce) {
		f.NotExecutable, f.NotFound = ce.NotExecutable, !ce.NotExecutable
	}
	return f
}

func (f *failure) Err() error {
	if f.NotFound || f.NotExecutable {
		return &CommandError{Text: f.Text, NotExecutable: f.NotExecutable}
	}
	err := errdefs.New(f.Kind, "%s", f.Text)
	if f.Reason != "" {
		err = errdefs.WithReason(err, f.Reason)
	}
	return err
}
