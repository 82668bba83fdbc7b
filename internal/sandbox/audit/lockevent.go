package audit

// What a LocksChanged says.
const (
	LocksBegin = "locked"
	LocksEnd   = "unlocked"
)

// LocksChanged says that the sandbox locked paths of its source, or unlocked them. The end of a
// lock by its time, or by the end of the sandbox, has no record.
type LocksChanged struct {
	Action   string `json:"action"` // LocksBegin or LocksEnd
	Paths    []Path `json:"paths"`
	Advisory bool   `json:"advisory,omitempty"`
	ForMS    int64  `json:"for_ms,omitempty"` // 0: until the sandbox stops
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
