package audit

// What a LocksChanged says.
const (
	LocksBegin = "locked"
	LocksEnd   = "unlocked"
)

// Why locks ended by themselves.
const (
	LocksTimeOver = "time"    // the time of the locks
	LocksStopped  = "stopped" // the sandbox stopped
	LocksKilled   = "killed"  // the supervisor of Sandbox was killed, which another one has noticed
)

// LocksChanged says that the sandbox locked paths of its source, or that its locks ended.
type LocksChanged struct {
	Action   string `json:"action"` // LocksBegin or LocksEnd
	Paths    []Path `json:"paths"`
	Advisory bool   `json:"advisory,omitempty"`
	ForMS    int64  `json:"for_ms,omitempty"` // 0: until the sandbox stops
	// Reason is why they ended by themselves; empty if they were unlocked.
	Reason string `json:"reason,omitempty"`
	// Sandbox is the name of the other sandbox that had them, with LocksKilled.
	Sandbox string `json:"sandbox,omitempty"`
}

// Kind returns KindLocksChanged.
func (LocksChanged) Kind() Kind { return KindLocksChanged }

// MessagePosted says that the sandbox posted a message on the board of its source. The record does
// not have the text.
type MessagePosted struct {
	Seq   uint64 `json:"seq"`
	By    string `json:"by"` // "agent" or "user"
	Topic string `json:"topic"`
	Bytes int    `json:"bytes"` // of the text
}

// Kind returns KindMessagePosted.
func (MessagePosted) Kind() Kind { return KindMessagePosted }
