package service

import (
	"context"
	"os"
	"sync"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// maxResultBytes limits an encoded ExecResult: the 4 MiB that clients accept by default, less room
// for the framing of a message.
const maxResultBytes = 4<<20 - 64<<10

// collect runs a job and returns its output as one message.
func (s *Service) collect(ctx context.Context, j *job) (*sandboxv1.ExecResult, error) {
	stdout, stderr := &head{most: maxResultBytes}, &head{most: maxResultBytes}
	var e ended
	run := func(ctx context.Context) (err error) {
		e, err = s.perform(ctx, j, stdout, stderr)
		return err
	}
	if j.detach {
		run = s.outlive(run)
	}
	if err := run(ctx); err != nil {
		return nil, err
	}
	return resultOf(e, stdout, stderr), nil
}

// head holds the beginning of what is written to it. It takes everything, so
// that a command never waits for room.
type head struct {
	most int
	data []byte
	cut  bool
}

func (k *head) Write(b []byte) (int, error) {
	n := min(len(b), k.most-len(k.data))
	k.data = append(k.data, b[:n]...)
	k.cut = k.cut || n < len(b)
	return len(b), nil
}

// Limits of the conflicts that a result lists; it also has their number.
const (
	maxConflicts     = 1000
	maxConflictBytes = maxResultBytes / 4
)

// listed returns the conflicts that a result lists.
func listed(conflicts []vpath.Path) []string {
	room := maxConflictBytes
	var list []string
	for _, p := range fitting(conflicts, &room, func(p vpath.Path) int { return len(p.Text()) }) {
		list = append(list, p.Text())
	}
	return list
}

// fitting returns the first elements of a list, as many as a result has and room holds, of which it
// takes their size.
func fitting[T any](list []T, room *int, size func(T) int) []T {
	list = list[:min(len(list), maxConflicts)]
	for i, element := range list {
		if *room -= size(element); *room < 0 {
			return list[:i]
		}
	}
	return list
}

// ending returns how a command ended, for the API.
func (e *ended) ending() wireconv.Ending {
	return wireconv.Ending{
		Code: int(e.exit), ExecID: e.execID, Duration: e.took, Conflicts: listed(e.conflicts), ConflictCount: int64(len(e.conflicts)),
		Effects: e.effects, SyncHeld: e.held, Keep: cutKept(e.keep),
	}
}

// resultOf returns the message with the output, cut only as far as necessary.
func resultOf(e ended, stdout, stderr *head) *sandboxv1.ExecResult {
	r := wireconv.EncodeResult(e.ending())
	room := maxResultBytes - proto.Size(r) - 64 // tags and lengths of the output fields
	// Each stream gets half, and the room that the other does not need.
	half := room / 2
	nOut, nErr := wireSize(stdout.data), wireSize(stderr.data)
	switch {
	case nOut+nErr <= room:
	case nErr <= half:
		stdout.shorten(room - nErr)
	case nOut <= half:
		stderr.shorten(room - nOut)
	default:
		stdout.shorten(half)
		stderr.shorten(half)
	}
	r.Stdout, r.StdoutBytes = wireconv.EncodeOutput(stdout.data)
	r.Stderr, r.StderrBytes = wireconv.EncodeOutput(stderr.data)
	r.StdoutTruncated, r.StderrTruncated = stdout.cut, stderr.cut
	return r
}

// wireSize is the size of data as EncodeOutput encodes it.
func wireSize(data []byte) int {
	text, raw := wireconv.EncodeOutput(data)
	return len(text) + len(raw)
}

// shorten cuts until wireSize is at most room.
func (k *head) shorten(room int) {
	for size := wireSize(k.data); size > room; size = wireSize(k.data) {
		k.cut = true
		// Cut in proportion, by at least one byte: a byte that is not UTF-8 takes up to four.
		n := int(float64(len(k.data)) * float64(room) / float64(size))
		k.data = cutText(k.data, min(n, len(k.data)-1))
	}
}

// cutText returns at most n bytes of data that do not end within a character.
func cutText(data []byte, n int) []byte {
	for back := range min(n, 3) {
		if data[n-back]&0xc0 != 0x80 { // the first byte of a character is dropped
			return data[:n-back]
		}
	}
	return data[:n]
}

// stream runs a job and sends its output; the last message has the exit code.
func (s *Service) stream(ctx context.Context, j *job, to outputStream) error {
	f := &frames{to: to, settled: make(chan struct{})}
	defer f.leave()
	j.begun = f.begin
	if !j.named {
		f.settle()
	}
	start := j.run
	j.run = func(ctx context.Context, stdout, stderr *os.File) (api.Exit, error) {
		defer f.settle() // also if it never began
		return start(ctx, stdout, stderr)
	}
	run := func(ctx context.Context) error {
		stdout := frameWriter{f, sandboxv1.ExecOutput_OUTPUT_TYPE_STDOUT, j.detach}
		stderr := frameWriter{f, sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR, j.detach}
		e, err := s.perform(ctx, j, stdout, stderr)
		if err != nil {
			return err
		}
		return f.send(wireconv.EncodeEnding(e.ending()))
	}
	if j.detach {
		run = s.outlive(run)
	}
	return run(ctx)
}

// outputStream is the call that output is sent on.
type outputStream interface {
	Send(*sandboxv1.ExecOutput) error
	SendHeader(metadata.MD) error
}

// frames sends output as it is written.
type frames struct {
	mu   sync.Mutex
	to   outputStream
	left bool // the call is over

	settled chan struct{} // closed when output may be sent
	once    sync.Once
}

// begin sends the header, which tells the client that the command runs, and the id of a command
// that can be resumed.
func (f *frames) begin(execID string, lost int64) {
	f.mu.Lock()
	if !f.left {
		_ = f.to.SendHeader(nil) // fails if the client has disconnected
	}
	f.mu.Unlock()
	if execID != "" {
		_ = f.send(&sandboxv1.ExecOutput{ExecId: execID, LostBytes: lost})
	}
	f.settle()
}

func (f *frames) settle() { f.once.Do(func() { close(f.settled) }) }

func (f *frames) send(m *sandboxv1.ExecOutput) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left {
		return context.Canceled
	}
	return f.to.Send(m)
}

// leave ends the sending.
func (f *frames) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = true
}

// frameWriter sends each write as a message.
type frameWriter struct {
	*frames
	kind sandboxv1.ExecOutput_OutputType
	// unbroken drops output that cannot be sent, so that the command continues.
	unbroken bool
}

func (w frameWriter) Write(b []byte) (int, error) {
	<-w.settled
	err := w.send(&sandboxv1.ExecOutput{Type: w.kind, Data: b})
	if err != nil && !w.unbroken {
		return 0, err
	}
	return len(b), nil
}
