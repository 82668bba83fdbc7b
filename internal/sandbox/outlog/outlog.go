// Package outlog keeps what a sandbox's detached commands wrote, on disk and in
// bounded space.
//
// A log is two files in the sandbox's directory: [current], and [previous], which
// was the current one until it was full. Each line is a [Record] in JSON. The
// supervisor writes; anybody who may enter the directory reads, while the sandbox
// runs and after it has stopped. The log goes with the directory.
//
// Writing never fails and never waits for a reader: what a full disk does not take
// is counted and told once there is room again. Nothing is synced, so a crash of
// the host can lose the end.
//
// A Writer is safe for concurrent use and starts no goroutine.
package outlog

import (
	"time"
)

// The files. maxBytes bounds each of them.
const (
	current  = "output.log"
	previous = "output.1.log"

	maxBytes = 8 << 20
)

// Stream says where a command wrote.
type Stream string

// The streams. A terminal has output alone.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Record is one line of a log. It has Argv, Data, Exit, Over, Lost or Opened.
type Record struct {
	Time time.Time `json:"time"`
	Exec string    `json:"exec,omitempty"`
	// Argv begins a command. Again says that the older file had that already.
	Argv  [][]byte `json:"argv,omitempty"`
	Again bool     `json:"again,omitempty"`

	Stream Stream `json:"stream,omitempty"`
	Data   []byte `json:"data,omitempty"`

	Exit *Exit `json:"exit,omitempty"`
	// Over says that nothing more of the command comes: it has ended, and so has
	// everything that had its streams.
	Over bool `json:"over,omitempty"`

	LostBytes int64 `json:"lost_bytes,omitempty"` // that the disk did not take
	// Opened says that another supervisor writes from here on: all that ran before
	// has ended.
	Opened bool `json:"opened,omitempty"`
}

// Exit is how a command ended.
type Exit struct {
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"` // non-zero: ended by this signal
	Reason string `json:"reason,omitempty"` // api.Reason
}
