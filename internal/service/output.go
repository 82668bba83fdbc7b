package service

import (
	"context"
	"io"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/vpath"
)

// maxResultBytes bounds an encoded ExecResult: what clients take by default, 4
// MiB, less what surrounds a message.
const maxResultBytes = 4<<20 - 64<<10

// collect runs a job and returns its output as one message.
func (s *Service) collect(ctx context.Context, j *job) (*sandboxv1.ExecResult, error) {
	stdout, stderr := &kept{most: maxResultBytes}, &kept{most: maxResultBytes}
	if !j.detach {
		e, err := s.perform(ctx, j, stdout, stderr)
		if err != nil {
			return nil, err
		}
		return resultOf(e, stdout, stderr), nil
	}
	type outcome struct {
		result *sandboxv1.ExecResult
		err    error
	}
	done := make(chan outcome, 1)
	s.background.Go(func() {
		ctx, cancel := s.detached(ctx)
		defer cancel()
		e, err := s.perform(ctx, j, stdout, stderr)
		if err != nil {
			done <- outcome{err: err}
			return
		}
		done <- outcome{result: resultOf(e, stdout, stderr)}
	})
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// detached is a context that outlives the call, but not the server.
func (s *Service) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(s.stopped, cancel)
	return ctx, cancel
}

// kept holds the beginning of what is written to it. It takes everything, so
// that a command never waits for room.
type kept struct {
	most int
	data []byte
	cut  bool
}

func (k *kept) Write(b []byte) (int, error) {
	n := min(len(b), k.most-len(k.data))
	k.data = append(k.data, b[:n]...)
	k.cut = k.cut || n < len(b)
	return len(b), nil
}

// resultOf makes the message of what was written, cut only as far as it must.
func resultOf(e ended, stdout, stderr *kept) *sandboxv1.ExecResult {
	r := &sandboxv1.ExecResult{ExitCode: e.exit, Duration: durationpb.New(e.took), ConflictCount: int64(len(e.conflicts))}
	const most = 1000 // conflicts; the number tells of the others
	for _, p := range e.conflicts[:min(len(e.conflicts), most)] {
		if proto.Size(r)+len(p)*4 > maxResultBytes/4 {
			break
		}
		r.Conflicts = append(r.Conflicts, p.Text())
	}
	room := maxResultBytes - proto.Size(r) - 64 // tags and lengths of what follows
	// Each stream gets half, and what the other leaves.
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
	r.Stdout, r.StdoutBytes = wireOutput(stdout.data)
	r.Stderr, r.StderrBytes = wireOutput(stderr.data)
	r.StdoutTruncated, r.StderrTruncated = stdout.cut, stderr.cut
	return r
}

// wireOutput is output as a string, and as bytes where the string is not
// exactly that.
func wireOutput(data []byte) (text string, raw []byte) {
	text = strings.ToValidUTF8(string(data), "\uFFFD")
	if text != string(data) {
		return text, data
	}
	return text, nil
}

// wireSize is how many bytes wireOutput makes of data.
func wireSize(data []byte) int {
	text, raw := wireOutput(data)
	return len(text) + len(raw)
}

// shorten cuts until wireSize is at most room.
func (k *kept) shorten(room int) {
	for size := wireSize(k.data); size > room; size = wireSize(k.data) {
		k.cut = true
		// In proportion, and at least by one: what is no UTF-8 takes up to
		// four times its length.
		n := int(float64(len(k.data)) * float64(room) / float64(size))
		k.data = cutText(k.data, min(n, len(k.data)-1))
	}
}

// cutText returns at most n bytes of data that do not end amid a character.
func cutText(data []byte, n int) []byte {
	for back := range min(n, 3) {
		if data[n-back]&0xc0 != 0x80 { // the first byte of a character is dropped
			return data[:n-back]
		}
	}
	return data[:n]
}

// frames sends output as it comes.
type frames struct {
	mu sync.Mutex
	to interface {
		Send(*sandboxv1.ExecOutput) error
	}
}

// stream runs a job and sends its output; the last message has the exit code.
func (s *Service) stream(j *job, to sandboxv1.SandboxService_ExecStreamServer) error {
	f := &frames{to: to}
	ctx := to.Context()
	stdout := io.Writer(frameWriter{f, sandboxv1.ExecOutput_OUTPUT_TYPE_STDOUT})
	stderr := io.Writer(frameWriter{f, sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR})
	if j.detach {
		var cancel context.CancelFunc
		ctx, cancel = s.detached(ctx)
		defer cancel()
		stdout, stderr = unbroken{stdout}, unbroken{stderr}
	}
	e, err := s.perform(ctx, j, stdout, stderr)
	if err != nil {
		return err
	}
	last := &sandboxv1.ExecOutput{ExitCode: &e.exit, ConflictCount: int64(len(e.conflicts))}
	last.Conflicts = texts(e.conflicts[:min(len(e.conflicts), 1000)])
	return f.send(last)
}

func texts(paths []vpath.Path) []string {
	var list []string
	for _, p := range paths {
		list = append(list, p.Text())
	}
	return list
}

func (f *frames) send(m *sandboxv1.ExecOutput) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.to.Send(m)
}

// frameWriter sends each write as a message.
type frameWriter struct {
	*frames
	kind sandboxv1.ExecOutput_OutputType
}

func (w frameWriter) Write(b []byte) (int, error) {
	if err := w.send(&sandboxv1.ExecOutput{Type: w.kind, Data: b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// unbroken takes what nobody hears any more.
type unbroken struct{ to io.Writer }

func (u unbroken) Write(b []byte) (int, error) {
	_, _ = u.to.Write(b) // the client has left, the command goes on
	return len(b), nil
}
