package audit

// Kind names an event; it is the record's "event".
type Kind string

// The kinds that this version writes.
const (
	KindSandboxCreated        Kind = "sandbox_created"
	KindSandboxStarted        Kind = "sandbox_started"
	KindCommandExecuted       Kind = "command_executed"
	KindPermissionDenied      Kind = "permission_denied"
	KindFileChanged           Kind = "file_changed"
	KindResourceLimitExceeded Kind = "resource_limit_exceeded"
	KindPolicyChanged         Kind = "policy_changed"
	KindApplied               Kind = "applied"
	KindDiscarded             Kind = "discarded"
	KindSessionCreated        Kind = "session_created"
	KindSessionClosed         Kind = "session_closed"
	KindSandboxRebased        Kind = "sandbox_rebased"
	KindSandboxStopped        Kind = "sandbox_stopped"
	KindSandboxDestroyed      Kind = "sandbox_destroyed"
	KindEventsOmitted         Kind = "events_omitted"
	KindArchived              Kind = "archived"
	KindGap                   Kind = "gap"
)

// KindMalformed is what Read makes of a line that is no record. It is never
// written.
const KindMalformed Kind = "malformed"

// Event is what a record tells. The types of this package that end an
// "event" each are the only ones.
type Event interface {
	// Kind returns the name of the event's type.
	Kind() Kind
}

// durable are the events of which a power failure must not take the record:
// what was done to the real directory, and what a person relies on having been
// told.
var durable = map[Kind]bool{
	KindSandboxCreated: true, KindCommandExecuted: true, KindPolicyChanged: true,
	KindApplied: true, KindDiscarded: true, KindSandboxRebased: true, KindSandboxDestroyed: true, KindGap: true,
	KindEventsOmitted: true, KindArchived: true,
}

// Rule is a policy rule as it was in force.
type Rule struct {
	Pattern    Text   `json:"pattern"`
	Permission string `json:"permission"`
	Type       string `json:"type,omitempty"`
	Priority   int32  `json:"priority,omitempty"`
	Source     Text   `json:"source,omitempty"` // where it was written: "policy.yaml:12", "--hide"
}

// Mount is a host directory that a sandbox sees besides its workspace.
type Mount struct {
	Source Text `json:"source"`
	Target Text `json:"target"`
}

// SandboxLimits are what a sandbox may use; zero is no limit.
type SandboxLimits struct {
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	CPUs        float64 `json:"cpus,omitempty"`
	CPUShares   int64   `json:"cpu_shares,omitempty"`
	PIDs        int64   `json:"pids,omitempty"`
	DiskBytes   int64   `json:"disk_bytes,omitempty"`
	DiskInodes  int64   `json:"disk_inodes,omitempty"`
	TimeoutMS   int64   `json:"timeout_ms,omitempty"`
}

// SandboxCreated tells what a sandbox was made of.
type SandboxCreated struct {
	Source       Text          `json:"source"`    // host directory, or a server's codebase
	Workspace    Text          `json:"workspace"` // path of it inside
	Runtime      string        `json:"runtime"`
	Net          string        `json:"net"`
	HostUID      uint32        `json:"host_uid"`
	Preset       string        `json:"preset,omitempty"`
	Rules        []Rule        `json:"rules"`
	RulesOmitted int64         `json:"rules_omitted,omitempty"`
	Mounts       []Mount       `json:"mounts,omitempty"`
	Limits       SandboxLimits `json:"limits"`
}

// SandboxStarted tells that a supervisor serves the sandbox.
type SandboxStarted struct {
	PID     int    `json:"pid"` // the supervisor's
	Version string `json:"version,omitempty"`
	// Enforced lists what really holds, in words of the mechanisms.
	Enforced []string `json:"enforced,omitempty"`
}

// CommandExecuted tells how a command ended.
type CommandExecuted struct {
	Exec            string `json:"exec,omitempty"`    // ties records of one command together
	Session         string `json:"session,omitempty"` // whose shell it was, or ran it
	Argv            []Text `json:"argv"`              // of a session's command: its text alone
	ArgvOmitted     int64  `json:"argv_omitted,omitempty"`
	Dir             Text   `json:"dir,omitempty"`
	ExitCode        int    `json:"exit_code"`
	Signal          string `json:"signal,omitempty"` // "SIGKILL"
	Error           Text   `json:"error,omitempty"`  // why it could not be started
	DurationMS      int64  `json:"duration_ms"`
	CPUUserMS       int64  `json:"cpu_user_ms"`
	CPUSystemMS     int64  `json:"cpu_system_ms"`
	MaxRSSBytes     int64  `json:"max_rss_bytes"`               // of its largest process
	MemoryPeakBytes int64  `json:"memory_peak_bytes,omitempty"` // of all together, where counted
	TimedOut        bool   `json:"timed_out"`
	OOMKilled       bool   `json:"oom_killed"`
}

// PermissionDenied tells what the policy refused.
type PermissionDenied struct {
	Exec       string `json:"exec,omitempty"`
	Path       Path   `json:"path"`
	PathSHA256 string `json:"path_sha256,omitempty"` // of the whole path, when Path is cut
	Operation  string `json:"operation"`
	Permission string `json:"permission"`     // what the path has
	Rule       Text   `json:"rule,omitempty"` // the deciding rule's pattern; empty: no rule, the default
	RuleIndex  int    `json:"rule_index"`     // among the rules in force; -1: no rule
	RuleSource Text   `json:"rule_source,omitempty"`
	PID        int    `json:"pid"` // as the supervisor sees it; 0: not known
	Program    Text   `json:"program,omitempty"`
	Count      int    `json:"count"` // repeats that this record stands for, 1 at least
}

// Rename is a name that moved.
type Rename struct {
	From Text `json:"from"`
	To   Text `json:"to"`
}

// FileChanged tells what a command changed in the sandbox's view.
type FileChanged struct {
	Exec     string   `json:"exec,omitempty"`
	Created  []Text   `json:"created,omitempty"`
	Modified []Text   `json:"modified,omitempty"`
	Deleted  []Text   `json:"deleted,omitempty"`
	Renamed  []Rename `json:"renamed,omitempty"`
	Omitted  int64    `json:"omitted,omitempty"` // changes that were not listed for want of room
}

// What ResourceLimitExceeded calls resources: the names of cgroup v2
// (cgroup-v2.rst), whichever version enforces them.
const (
	ResourceMemory = "memory.max" // bytes
	ResourcePIDs   = "pids.max"   // processes and threads
)

// ResourceLimitExceeded tells that a limit was reached: Limit is what the
// sandbox was allowed of Resource, in the resource's unit.
type ResourceLimitExceeded struct {
	Exec     string  `json:"exec,omitempty"`
	Resource string  `json:"resource"`
	Limit    float64 `json:"limit"`
	Count    int64   `json:"count,omitempty"` // how often: processes killed, forks refused
}

// PolicyChanged tells the rules from now on.
type PolicyChanged struct {
	Reason       string `json:"reason,omitempty"`
	Preset       string `json:"preset,omitempty"`
	Rules        []Rule `json:"rules"`
	RulesOmitted int64  `json:"rules_omitted,omitempty"`
}

// Applied tells which changes went into the source.
type Applied struct {
	Paths   []Text `json:"paths"`
	Refused []Text `json:"refused,omitempty"` // conflicts: left in the sandbox
	// Overwrote are those of Paths where the source was not what the sandbox saw.
	Overwrote []Text `json:"overwrote,omitempty"`
	// To is another directory that they went into instead; they stay in the
	// sandbox, too.
	To      Text  `json:"to,omitempty"`
	Omitted int64 `json:"omitted,omitempty"`
}

// Discarded tells which changes were thrown away.
type Discarded struct {
	Paths   []Text `json:"paths"`
	Omitted int64  `json:"omitted,omitempty"`
}

// SessionCreated tells that a shell waits for commands.
type SessionCreated struct {
	Session string `json:"session"`
	Exec    string `json:"exec,omitempty"` // the shell's own
	Shell   Text   `json:"shell"`
	Dir     Text   `json:"dir,omitempty"`
}

// The reasons of a SessionClosed.
const (
	SessionEnded    = "shell_ended"     // the shell ended by itself or by a command
	SessionByClient = "closed"          // a client closed it
	SessionIdle     = "idle"            // no command came for as long as it may wait
	SessionStuck    = "not_interrupted" // a command could not be ended but with its shell
	SessionBroken   = "broken"          // the shell or its control channel did not keep to the protocol
	SessionStopped  = "sandbox_stopped"
)

// SessionClosed tells that a session's shell is gone, and all that it started.
type SessionClosed struct {
	Session    string `json:"session"`
	Exec       string `json:"exec,omitempty"` // the shell's own
	Reason     string `json:"reason"`
	DurationMS int64  `json:"duration_ms"`
}

// SandboxRebased tells that the sandbox's source is from now on another directory
// at the same path.
type SandboxRebased struct {
	Source   Text   `json:"source"`
	WasInode uint64 `json:"was_inode"`
	Inode    uint64 `json:"inode"`
}

// SandboxStopped tells that the sandbox's processes are gone.
type SandboxStopped struct {
	Reason Text `json:"reason,omitempty"`
}

// SandboxDestroyed tells that the sandbox and its changes were removed. It is
// the last record of a log.
type SandboxDestroyed struct{}

// The reasons of a Gap.
const (
	GapTorn           = "torn_write"      // Bytes before this record are no record
	GapLost           = "write_failed"    // Lost events could not be written
	GapRecordsMissing = "records_missing" // Lost records were at the end of the log once
	GapHeadMissing    = "head_missing"    // the head beside the log is gone
	GapHeadDiffers    = "head_differs"    // the head names another record than the log has
)

// Gap tells that the log is not whole at this place. This package writes it by
// itself.
type Gap struct {
	Reason string `json:"reason"`
	Offset int64  `json:"offset,omitempty"` // of the torn bytes in the file
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of the torn bytes
	Lost   uint64 `json:"lost,omitempty"`
	Error  string `json:"error,omitempty"` // what the write failed with
}

// Unknown is an event of a later version. Record.Raw has its fields.
type Unknown struct{ Name Kind }

// Malformed is a line that is no record: torn, edited, or foreign.
type Malformed struct {
	Bytes  int64 // without the newline
	Reason string
}

// Kind returns KindSandboxCreated.
func (SandboxCreated) Kind() Kind { return KindSandboxCreated }

// Kind returns KindSandboxStarted.
func (SandboxStarted) Kind() Kind { return KindSandboxStarted }

// Kind returns KindCommandExecuted.
func (CommandExecuted) Kind() Kind { return KindCommandExecuted }

// Kind returns KindPermissionDenied.
func (PermissionDenied) Kind() Kind { return KindPermissionDenied }

// Kind returns KindFileChanged.
func (FileChanged) Kind() Kind { return KindFileChanged }

// Kind returns KindResourceLimitExceeded.
func (ResourceLimitExceeded) Kind() Kind { return KindResourceLimitExceeded }

// Kind returns KindPolicyChanged.
func (PolicyChanged) Kind() Kind { return KindPolicyChanged }

// Kind returns KindApplied.
func (Applied) Kind() Kind { return KindApplied }

// Kind returns KindDiscarded.
func (Discarded) Kind() Kind { return KindDiscarded }

// Kind returns KindSessionCreated.
func (SessionCreated) Kind() Kind { return KindSessionCreated }

// Kind returns KindSessionClosed.
func (SessionClosed) Kind() Kind { return KindSessionClosed }

// Kind returns KindSandboxRebased.
func (SandboxRebased) Kind() Kind { return KindSandboxRebased }

// Kind returns KindSandboxStopped.
func (SandboxStopped) Kind() Kind { return KindSandboxStopped }

// Kind returns KindSandboxDestroyed.
func (SandboxDestroyed) Kind() Kind { return KindSandboxDestroyed }

// Kind returns KindGap.
func (Gap) Kind() Kind { return KindGap }

// Kind returns the name that this version does not know.
func (u Unknown) Kind() Kind { return u.Name }

// Kind returns KindMalformed.
func (Malformed) Kind() Kind { return KindMalformed }
