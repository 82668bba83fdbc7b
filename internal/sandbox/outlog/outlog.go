// Package outlog stores the output of a sandbox's detached commands on disk, in bounded
// space.
//
// A log is two files in the sandbox's directory: [current], and [previous], which was the
// current one until it was full. Each line is a [Record] in JSON. The supervisor writes it.
// Users who may search the directory can read it, while the sandbox runs and after it has
// stopped. The log is removed with the directory.
//
// A write never fails and never waits for a reader. Output that a full disk does not take
// is counted, and recorded when there is room again. Nothing is synced, so a crash of the
// host can lose the end.
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

// Stream is the stream to which a command wrote.
type Stream string

// The streams. A terminal has only output.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Record is one line of a log. It has Argv, Data, Exit, Over, Lost or Opened.
type Record struct {
	Time time.Time `json:"time"`
	Exec string    `json:"exec,omitempty"`
	// Argv is set in the first record of a command. Again says that the older file has one
	// too.
	Argv  [][]byte `json:"argv,omitempty"`
	Again bool     `json:"again,omitempty"`

	Stream Stream `json:"stream,omitempty"`
	Data   []byte `json:"data,omitempty"`

	Exit *Exit `json:"exit,omitempty"`
	// Over says that the command and all processes with its streams have ended.
	Over bool `json:"over,omitempty"`

	LostBytes int64 `json:"lost_bytes,omitempty"` // that the disk did not take
	// Opened says that a new supervisor writes the following records: all earlier commands
	// have ended.
	Opened bool `json:"opened,omitempty"`
}

// Exit is how a command ended.
type Exit struct {
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"` // non-zero: ended by this signal
	Reason string `json:"reason,omitempty"` // api.Reason
}
