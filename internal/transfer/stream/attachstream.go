package stream

import (
	"sync"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// SignalPatience is how long a signal waits behind input that the program does not read.
const SignalPatience = 2 * time.Second

// AttachStream sends input and signals to a program of an Attach call. It is safe for concurrent
// use. What is sent to a program that has ended is dropped without an error: the call's answers
// have its end.
type AttachStream struct {
	Patience time.Duration // of Signal

	to      sender
	sending sync.Mutex
}

type sender interface {
	Send(m *sandboxv1.AttachRequest) error
}

// NewAttachStream sends the first message of the call, start or resume.
func NewAttachStream(to sender, first *sandboxv1.AttachRequest) *AttachStream {
	t := &AttachStream{Patience: SignalPatience, to: to}
	t.send(first)
	return t
}

func (t *AttachStream) send(m *sandboxv1.AttachRequest) {
	t.sending.Lock()
	defer t.sending.Unlock()
	_ = t.to.Send(m)
}

// Input sends to the program's standard input.
func (t *AttachStream) Input(data []byte) {
	for len(data) > 0 {
		n := min(len(data), Bytes)
		// A copy: gRPC keeps the message after the caller reuses its data.
		t.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Stdin{Stdin: append([]byte(nil), data[:n]...)}})
		data = data[n:]
	}
}

// EndInput ends the standard input.
func (t *AttachStream) EndInput() {
	t.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_StdinEnd{StdinEnd: true}})
}

// Resize sets the size of the program's terminal.
func (t *AttachStream) Resize(rows, columns uint16) {
	t.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Resize{Resize: WindowSize(rows, columns)}})
}

// WindowSize returns the message with the size of a terminal.
func WindowSize(rows, columns uint16) *sandboxv1.AttachRequest_WindowSize {
	return &sandboxv1.AttachRequest_WindowSize{Rows: uint32(rows), Columns: uint32(columns)}
}

// Signal sends a signal, and reports whether it was sent within Patience. If not, it stays queued
// behind input until the call ends.
func (t *AttachStream) Signal(number int32) (sent bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Signal{Signal: number}})
	}()
	select {
	case <-done:
		return true
	case <-time.After(t.Patience):
		return false
	}
}
