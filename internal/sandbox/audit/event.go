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
	KindNetworkAllowed        Kind = "network_allowed"
	KindNetworkDenied         Kind = "network_denied"
	KindPortConnected         Kind = "port_connected"
	KindHostsChanged          Kind = "hosts_changed"
	KindPolicyChanged         Kind = "policy_changed"
	KindAccessAsked           Kind = "access_asked"
	KindAccessAnswered        Kind = "access_answered"
	KindAsksSuppressed        Kind = "asks_suppressed"
	KindLocksChanged          Kind = "locks_changed"
	KindMessagePosted         Kind = "message_posted"
	KindApplyRequested        Kind = "apply_requested"
	KindApplied               Kind = "applied"
	KindDiscarded             Kind = "discarded"
	KindUndone                Kind = "undone"
	KindMerged                Kind = "merged"
	KindSessionCreated        Kind = "session_created"
	KindSessionClosed         Kind = "session_closed"
	KindSandboxRebased        Kind = "sandbox_rebased"
	KindSnapshotChanged       Kind = "snapshot_changed"
	KindChangesImported       Kind = "changes_imported"
	KindSandboxStopped        Kind = "sandbox_stopped"
	KindSandboxDestroyed      Kind = "sandbox_destroyed"
	KindEventsOmitted         Kind = "events_omitted"
	KindArchived              Kind = "archived"
	KindGap                   Kind = "gap"
)

// KindMalformed is the kind that Read gives a line that is not a record. It is never
// written.
const KindMalformed Kind = "malformed"

// Event is the content of a record. Only types of this package implement it.
type Event interface {
	// Kind returns the name of the event's type.
	Kind() Kind
}

// durable are the events with records that must survive a power failure: changes of the
// real directory, and events on which people rely.
var durable = map[Kind]bool{
	KindSandboxCreated: true, KindCommandExecuted: true, KindPolicyChanged: true, KindHostsChanged: true,
	KindApplyRequested: true, KindApplied: true, KindDiscarded: true, KindUndone: true, KindMerged: true, KindSandboxRebased: true, KindChangesImported: true, KindSandboxDestroyed: true, KindGap: true,
	KindEventsOmitted: true, KindArchived: true, KindAccessAnswered: true,
}

// Rule is a rule of the policy in force.
type Rule struct {
	Pattern    Text   `json:"pattern"`
	Permission string `json:"permission"`
	Type       string `json:"type,omitempty"`
	Priority   int32  `json:"priority,omitempty"`
	Source     Text   `json:"source,omitempty"` // where it was written: "policy.yaml:12", "--hide"
}

// Mount is a host directory that a sandbox sees in addition to its workspace.
type Mount struct {
	Source Text   `json:"source"`
	Target Text   `json:"target"`
	Name   string `json:"name,omitempty"`
	Mode   string `json:"mode,omitempty"`  // how it shows the source; empty: a bind mount of 0.3.0
	Rules  []Rule `json:"rules,omitempty"` // of a mount with a policy file, when the sandbox is made
	// RulesSHA256 is the digest of the rules, of a mode with rules.
	RulesSHA256 string `json:"rules_sha256,omitempty"`
}

// SandboxLimits are the resource limits of a sandbox. Zero means no limit.
type SandboxLimits struct {
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	CPUs        float64 `json:"cpus,omitempty"`
	CPUShares   int64   `json:"cpu_shares,omitempty"`
	PIDs        int64   `json:"pids,omitempty"`
	DiskBytes   int64   `json:"disk_bytes,omitempty"`
	DiskInodes  int64   `json:"disk_inodes,omitempty"`
	TimeoutMS   int64   `json:"timeout_ms,omitempty"`
}

// SandboxCreated says that a sandbox was created, and with which settings.
type SandboxCreated struct {
	Source       Text          `json:"source"`    // host directory, or a server's codebase
	Workspace    Text          `json:"workspace"` // path of it inside
	Runtime      string        `json:"runtime"`
	Net          string        `json:"net"`
	HostUID      uint32        `json:"host_uid"`
	Preset       string        `json:"preset,omitempty"`
	Git          string        `json:"git,omitempty"` // a clean repository and its depth
	Rules        []Rule        `json:"rules"`
	RulesOmitted int64         `json:"rules_omitted,omitempty"`
	Mounts       []Mount       `json:"mounts,omitempty"`
	Limits       SandboxLimits `json:"limits"`
}

// EnforcedNet begins the word in SandboxStarted.Enforced that names the network.
const EnforcedNet = "net "

// SandboxStarted says that a supervisor serves the sandbox.
type SandboxStarted struct {
	PID     int    `json:"pid"` // the supervisor's
	Version string `json:"version,omitempty"`
	// Enforced lists the effective protections, by the names of the mechanisms.
	Enforced []string `json:"enforced,omitempty"`
	// AllowNet are the hosts that it may reach, of a network of named hosts.
	AllowNet []Text `json:"allow_net,omitempty"`
	// Mounts are as in SandboxCreated, which they may differ from.
	Mounts        []Mount `json:"mounts,omitempty"`
	MountsOmitted int64   `json:"mounts_omitted,omitempty"`
	// Scratch are the directories of the workspace that are not reviewed.
	Scratch []Text `json:"scratch,omitempty"`
	// Git is the mode of a clean repository, with its depth.
	Git string `json:"git,omitempty"`
	// Published are the ports inside that the host shows.
	Published []PublishedPort `json:"published,omitempty"`
}

// PublishedPort is a TCP port inside, and where the host shows it.
type PublishedPort struct {
	Address  string `json:"address"`
	HostPort uint16 `json:"host_port"`
	Port     uint16 `json:"port"` // inside
}

// CommandExecuted says how a command ended.
type CommandExecuted struct {
	Exec            string `json:"exec,omitempty"`    // identifies the records of one command
	Session         string `json:"session,omitempty"` // the session of which it is, or in which it ran
	Argv            []Text `json:"argv"`              // for a session's command its text only
	ArgvOmitted     int64  `json:"argv_omitted,omitempty"`
	Dir             Text   `json:"dir,omitempty"`
	ExitCode        int    `json:"exit_code"`
	Signal          string `json:"signal,omitempty"` // "SIGKILL"
	Error           Text   `json:"error,omitempty"`  // why it could not be started
	DurationMS      int64  `json:"duration_ms"`
	CPUUserMS       int64  `json:"cpu_user_ms"`
	CPUSystemMS     int64  `json:"cpu_system_ms"`
	MaxRSSBytes     int64  `json:"max_rss_bytes"`               // of its largest process
	MemoryPeakBytes int64  `json:"memory_peak_bytes,omitempty"` // of all together, if counted
	TimedOut        bool   `json:"timed_out"`
	OOMKilled       bool   `json:"oom_killed"`
}

// PermissionDenied says what the policy refused.
type PermissionDenied struct {
	Exec       string `json:"exec,omitempty"`
	Mount      string `json:"mount,omitempty"` // name of the mount in which Path is; empty: the workspace
	Path       Path   `json:"path"`
	PathSHA256 string `json:"path_sha256,omitempty"` // of the whole path, when Path is cut
	Operation  string `json:"operation"`
	Permission string `json:"permission"`     // of the path
	Rule       Text   `json:"rule,omitempty"` // the deciding rule's pattern; empty: no rule, the default
	RuleIndex  int    `json:"rule_index"`     // among the rules in force; -1: no rule
	RuleSource Text   `json:"rule_source,omitempty"`
	PID        int    `json:"pid"` // as the supervisor sees it; 0: not known
	Program    Text   `json:"program,omitempty"`
	Count      int    `json:"count"` // repeats that this record represents, at least 1
}

// Rename is a renamed entry.
type Rename struct {
	From Text `json:"from"`
	To   Text `json:"to"`
}

// FileChanged says what a command changed in the sandbox's view.
type FileChanged struct {
	Exec     string   `json:"exec,omitempty"`
	Mount    string   `json:"mount,omitempty"` // name of the mount in which the paths are; empty: the workspace
	Created  []Text   `json:"created,omitempty"`
	Modified []Text   `json:"modified,omitempty"`
	Deleted  []Text   `json:"deleted,omitempty"`
	Renamed  []Rename `json:"renamed,omitempty"`
	Omitted  int64    `json:"omitted,omitempty"` // changes that did not fit
}

// The resources of ResourceLimitExceeded: the names of cgroup v2 (cgroup-v2.rst), also if
// v1 enforces them. Those of the disk have no name there. Those of the network are network.LIMIT
// and secret.NAME.LIMIT.
const (
	ResourceMemory     = "memory.max"  // bytes
	ResourcePIDs       = "pids.max"    // processes and threads
	ResourceDiskBytes  = "disk.bytes"  // of the deltas, together
	ResourceDiskInodes = "disk.inodes" // of the deltas, together
)

// ResourceLimitExceeded says that a limit was reached. Limit is the limit of Resource, in
// the resource's unit.
type ResourceLimitExceeded struct {
	Exec     string  `json:"exec,omitempty"`
	Resource string  `json:"resource"`
	Limit    float64 `json:"limit"`
	Count    int64   `json:"count,omitempty"` // how often: processes killed, forks and writes refused
}

// NetworkAllowed tells of a connection to a host that may be reached, when it has
// ended, or could not be made.
type NetworkAllowed struct {
	Host          Text   `json:"host"` // the name that was connected to, or an address
	Port          uint16 `json:"port"`
	Address       string `json:"address,omitempty"` // where the connection went
	Rule          Text   `json:"rule"`
	SentBytes     int64  `json:"sent_bytes"`         // by the sandbox; -1: not known
	ReceivedBytes int64  `json:"received_bytes"`     // -1: not known
	Requests      int64  `json:"requests,omitempty"` // of HTTP, where they are seen
	// Proxy is HOST:PORT of the caller's proxy by which the connection was made. Without an
	// Address, the proxy looked the name up.
	Proxy Text `json:"proxy,omitempty"`
	Error Text `json:"error,omitempty"` // why it could not be made
}

// NetworkDenied tells what of the network was refused.
type NetworkDenied struct {
	Host Text   `json:"host"`           // as it was asked for; empty for a Socket
	Port uint16 `json:"port,omitempty"` // absent: its address was asked for
	// Protocol is absent for TCP, and where an address was asked for.
	Protocol string `json:"protocol,omitempty"`
	// Socket is the kind of a socket that no program gets, and Program the name of the one that
	// tried. A record has both or neither.
	Socket  string `json:"socket,omitempty"`
	Program Text   `json:"program,omitempty"`
	Reason  Text   `json:"reason"`
	Count   int    `json:"count"` // repeats that this record stands for, 1 at least
}

// PortConnected tells of a connection to a published port, when it has ended, or could not be
// passed on.
type PortConnected struct {
	Address       string `json:"address"`
	HostPort      uint16 `json:"host_port"`
	Port          uint16 `json:"port"`            // inside
	SentBytes     int64  `json:"sent_bytes"`      // by the sandbox; -1: not known
	ReceivedBytes int64  `json:"received_bytes"`  // -1: not known
	Error         Text   `json:"error,omitempty"` // why it was not passed on
}

// AllowedHost is a host that a sandbox may reach.
type AllowedHost struct {
	Host  Text   `json:"host"`
	Until string `json:"until,omitempty"` // RFC 3339; absent: it has no end
}

// HostsChanged has the hosts that the sandbox may reach from now on, of a network of named
// hosts.
type HostsChanged struct {
	Reason   string        `json:"reason,omitempty"`
	Granted  []Text        `json:"granted,omitempty"`
	Revoked  []Text        `json:"revoked,omitempty"`
	AllowNet []AllowedHost `json:"allow_net"`
	Omitted  int64         `json:"omitted,omitempty"` // hosts that did not fit
}

// PolicyChanged has the new rules.
type PolicyChanged struct {
	Reason       string `json:"reason,omitempty"`
	Preset       string `json:"preset,omitempty"`
	Rules        []Rule `json:"rules"`
	RulesOmitted int64  `json:"rules_omitted,omitempty"`
}

// ApplyRequested says that an agent has asked a person to apply the changes in the workspace.
// Nothing was applied.
type ApplyRequested struct {
	Digest  string `json:"digest"` // of the state that the agent means, as diff prints it
	Changes int    `json:"changes"`
	Message Text   `json:"message,omitempty"` // of the agent: not to be trusted
}

// Applied says which changes were applied to the source.
type Applied struct {
	Mount   string `json:"mount,omitempty"` // name of the mount in which the paths are; empty: the workspace
	Paths   []Text `json:"paths"`
	Refused []Text `json:"refused,omitempty"` // conflicts: left in the sandbox
	// Kept says that the end of a command applied them, by rules with apply: keep.
	Kept bool `json:"kept,omitempty"`
	// Overwrote are those of Paths that had changed in the source since the sandbox saw
	// them.
	Overwrote []Text `json:"overwrote,omitempty"`
	// Merged are those of Paths that had changed in the source, too, and have the changes of both
	// now.
	Merged []Text `json:"merged,omitempty"`
	// To is the directory to which they were applied instead of the source; they also stay
	// in the sandbox.
	To Text `json:"to,omitempty"`
	// Branch is the new branch to which they were committed instead, with the id of the commit;
	// they also stay in the sandbox.
	Branch  Text   `json:"branch,omitempty"`
	Commit  string `json:"commit,omitempty"`
	Omitted int64  `json:"omitted,omitempty"`
}

// Discarded says which changes were discarded.
type Discarded struct {
	Mount   string `json:"mount,omitempty"` // name of the mount in which the paths are; empty: the workspace
	Paths   []Text `json:"paths"`
	Omitted int64  `json:"omitted,omitempty"`
}

// Undone says that an apply was undone, or an undo was: the source is as before it again.
type Undone struct {
	Mount       string `json:"mount,omitempty"` // name of the mount in which the paths are; empty: the workspace
	Transaction string `json:"transaction"`
	Of          string `json:"of"`             // the transaction that was reversed
	Redo        bool   `json:"redo,omitempty"` // it was an undo
	Paths       []Text `json:"paths"`
	To          Text   `json:"to,omitempty"` // the directory, if it is not the source
	Omitted     int64  `json:"omitted,omitempty"`
}

// Merged says that changes of another sandbox were merged into this one's. The source did not
// change.
type Merged struct {
	From    Text   `json:"from"` // the name of the other sandbox, or NAME@SNAPSHOT
	FromID  string `json:"from_id"`
	Kept    string `json:"kept"` // the snapshot with what was there before
	Paths   []Text `json:"paths"`
	Omitted int64  `json:"omitted,omitempty"`
}

// SessionCreated says that a session's shell waits for commands.
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
	SessionIdle     = "idle"            // no command came within the idle time-out
	SessionStuck    = "not_interrupted" // a command could only be ended together with the shell
	SessionBroken   = "broken"          // the shell or its control channel violated the protocol
	SessionStopped  = "sandbox_stopped"
)

// SessionClosed says that a session's shell and all that it started have ended.
type SessionClosed struct {
	Session    string `json:"session"`
	Exec       string `json:"exec,omitempty"` // the shell's own
	Reason     string `json:"reason"`
	DurationMS int64  `json:"duration_ms"`
}

// SandboxRebased says that the sandbox's source is now another directory at the same path.
type SandboxRebased struct {
	Mount    string `json:"mount,omitempty"` // name of the mount of which it is the source; empty: the workspace
	Source   Text   `json:"source"`
	WasInode uint64 `json:"was_inode"`
	Inode    uint64 `json:"inode"`
}

// ChangesImported says that the sandbox began with the changes in a file.
type ChangesImported struct {
	File      Text   `json:"file"`               // host path
	SHA256    string `json:"sha256"`             // of the file, without its write-ahead log
	Changes   int64  `json:"changes"`            // entries made and deleted
	Deletions int64  `json:"deletions"`          // of these
	LeftOut   int64  `json:"left_out,omitempty"` // changes that the policy refused
}

// SnapshotChanged says what was done with a state of the sandbox.
type SnapshotChanged struct {
	Action   string `json:"action"`             // SnapshotTaken, …
	Snapshot string `json:"snapshot,omitempty"` // empty: the present state
	Label    string `json:"label,omitempty"`
	Reason   string `json:"reason,omitempty"` // why it was taken by itself
	Kept     string `json:"kept,omitempty"`   // the snapshot with what was there before it was restored
	Fork     string `json:"fork,omitempty"`   // name of the sandbox that was made of it
}

// The actions of SnapshotChanged.
const (
	SnapshotTaken    = "taken"
	SnapshotRemoved  = "removed"
	SnapshotRestored = "restored"
	SnapshotForked   = "forked"
)

// SandboxStopped says that the sandbox's processes have ended.
type SandboxStopped struct {
	Reason Text `json:"reason,omitempty"`
}

// SandboxDestroyed says that the sandbox and its changes were removed. It is the last
// record of a log.
type SandboxDestroyed struct{}

// The reasons of a Gap.
const (
	GapTorn           = "torn_write"      // Bytes before this record are not a record
	GapLost           = "write_failed"    // Lost events could not be written
	GapRecordsMissing = "records_missing" // Lost records at the end of the log are missing
	GapHeadMissing    = "head_missing"    // the head file of the log is missing
	GapHeadDiffers    = "head_differs"    // the head file has another record than the log
)

// Gap says that the log is incomplete at this place. Only this package writes it.
type Gap struct {
	Reason string `json:"reason"`
	Offset int64  `json:"offset,omitempty"` // of the torn bytes in the file
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of the torn bytes
	Lost   uint64 `json:"lost,omitempty"`
	Error  string `json:"error,omitempty"` // the error of the write
}

// Unknown is an event of a later version of agentfense. Record.Raw has its fields.
type Unknown struct{ Name Kind }

// Malformed is a line that is not a record: torn, edited, or foreign.
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

// Kind returns KindNetworkAllowed.
func (NetworkAllowed) Kind() Kind { return KindNetworkAllowed }

// Kind returns KindNetworkDenied.
func (NetworkDenied) Kind() Kind { return KindNetworkDenied }

// Kind returns KindPortConnected.
func (PortConnected) Kind() Kind { return KindPortConnected }

// Kind returns KindHostsChanged.
func (HostsChanged) Kind() Kind { return KindHostsChanged }

// Kind returns KindPolicyChanged.
func (PolicyChanged) Kind() Kind { return KindPolicyChanged }

// Kind returns KindApplyRequested.
func (ApplyRequested) Kind() Kind { return KindApplyRequested }

// Kind returns KindApplied.
func (Applied) Kind() Kind { return KindApplied }

// Kind returns KindDiscarded.
func (Discarded) Kind() Kind { return KindDiscarded }

// Kind returns KindUndone.
func (Undone) Kind() Kind { return KindUndone }

// Kind returns KindMerged.
func (Merged) Kind() Kind { return KindMerged }

// Kind returns KindSessionCreated.
func (SessionCreated) Kind() Kind { return KindSessionCreated }

// Kind returns KindSessionClosed.
func (SessionClosed) Kind() Kind { return KindSessionClosed }

// Kind returns KindChangesImported.
func (ChangesImported) Kind() Kind { return KindChangesImported }

// Kind returns KindSandboxRebased.
func (SandboxRebased) Kind() Kind { return KindSandboxRebased }

// Kind returns KindSnapshotChanged.
func (SnapshotChanged) Kind() Kind { return KindSnapshotChanged }

// Kind returns KindSandboxStopped.
func (SandboxStopped) Kind() Kind { return KindSandboxStopped }

// Kind returns KindSandboxDestroyed.
func (SandboxDestroyed) Kind() Kind { return KindSandboxDestroyed }

// Kind returns KindGap.
func (Gap) Kind() Kind { return KindGap }

// Kind returns the unknown name.
func (u Unknown) Kind() Kind { return u.Name }

// Kind returns KindMalformed.
func (Malformed) Kind() Kind { return KindMalformed }
