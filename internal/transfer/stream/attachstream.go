package stream

import (
	"sync"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// SignalPatience is how long a signal may wait behind input that the program
// does not read.
const SignalPatience = 2 * time.Second

// AttachStream is what is said to a program by an Attach call. It may be used
// concurrently. What is said to a program that has ended is lost without an
// error: the call's answers tell how it ended.
type AttachStream struct {
	Patience time.Duration // of Signal

	to      sender
	sending sync.Mutex
}

type sender interface {
	Send(m *sandboxv1.AttachRequest) error
}

// NewAttachStream begins with the message that says which program it is.
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
		// The caller keeps its data, gRPC the message.
		t.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Stdin{Stdin: append([]byte(nil), data[:n]...)}})
		data = data[n:]
	}
}

// EndInput says that nothing more comes on standard input.
func (t *AttachStream) EndInput() {
	t.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_StdinEnd{StdinEnd: true}})
}

// Resize tells the program's terminal its new size.
func (t *AttachStream) Resize(rows, columns uint16) {
	t.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Resize{Resize: WindowSize(rows, columns)}})
}

// WindowSize is a terminal's, as it is sent.
func WindowSize(rows, columns uint16) *sandboxv1.AttachRequest_WindowSize {
	return &sandboxv1.AttachRequest_WindowSize{Rows: uint32(rows), Columns: uint32(columns)}
}

// Signal sends a signal, and reports whether it got past the input that is on
// its way. If not, it is still being sent until the call ends.
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
