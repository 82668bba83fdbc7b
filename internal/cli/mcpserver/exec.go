package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

type execInput struct {
	Command        string `json:"command" jsonschema:"shell command"`
	WorkDir        string `json:"workdir,omitempty" jsonschema:"directory to start in, relative to the project directory"`
	Stdin          string `json:"stdin,omitempty" jsonschema:"standard input of the command"`
	TimeoutSeconds int    `json:"timeout_seconds,omitempty" jsonschema:"end the command after this time; the server may set a shorter one"`
}

// exec is the tool of that name.
func (s *service) exec(ctx context.Context, request *mcp.CallToolRequest, in execInput) (*mcp.CallToolResult, any, error) {
	timeout, err := s.timeout(in.TimeoutSeconds)
	if err == nil && in.Command == "" {
		err = errdefs.New(errdefs.Invalid, "command: it is empty")
	}
	dir := vpath.Root
	if err == nil && in.WorkDir != "" {
		dir, err = s.path(in.WorkDir)
	}
	if err != nil {
		return nil, nil, err
	}
	c := backend.Command{Argv: backend.ShellCommand(in.Command), Here: s.o.Here, Timeout: timeout}
	if in.WorkDir != "" {
		c.WorkDir = "./" + dir.Rel()
	}
	p := progressOf(ctx, request)
	done, err := s.run(ctx, c, in.Stdin, p.note)
	p.end()
	if err != nil {
		return nil, nil, err
	}
	return done.result(), nil, nil
}

// timeout is that of a command for which the model wants so many seconds, 0 for no wish.
func (s *service) timeout(seconds int) (time.Duration, error) {
	const most = int(24 * time.Hour / time.Second)
	switch {
	case seconds < 0:
		return 0, errdefs.New(errdefs.Invalid, "timeout_seconds %d: want a positive number", seconds)
	case seconds == 0:
		return s.o.Timeout, nil
	}
	return min(time.Duration(min(seconds, most))*time.Second, s.o.Timeout), nil
}

// done is a command that has ended.
type done struct {
	exit           backend.Exit
	stdout, stderr output
}

// run runs a command in the sandbox. When ctx ends, the supervisor kills all of the command. note
// is told of output.
func (s *service) run(ctx context.Context, c backend.Command, stdin string, note func(total int64)) (*done, error) {
	select {
	case s.commands <- struct{}{}:
		defer func() { <-s.commands }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	running, err := s.attach(ctx, c)
	if err != nil {
		return nil, err
	}
	go func() { // ends with the command, which closes the pipe
		_, _ = io.WriteString(running, stdin) // a command need not read it
		running.CloseInput()
	}()
	d := &done{}
	meter := meter{note: note}
	d.stdout, d.stderr = output{most: s.o.MaxOutputBytes, meter: &meter}, output{most: s.o.MaxOutputBytes, meter: &meter}
	if d.exit, err = running.Wait(&d.stdout, &d.stderr); err != nil {
		return nil, err
	}
	s.o.Keep(ctx, s.sb.ref())
	return d, nil
}

// attach starts a command. If the sandbox was stopped meanwhile, it is started again.
func (s *service) attach(ctx context.Context, c backend.Command) (backend.Attached, error) {
	for again := true; ; again = false {
		_, live, err := s.sb.enter(ctx)
		if err != nil {
			return nil, err
		}
		running, err := live.Attach(ctx, c)
		if err == nil {
			return running, nil
		}
		if _, never := errors.AsType[*backend.NotStartedError](err); never || !again || ctx.Err() != nil {
			return nil, err
		}
		s.sb.lost(live)
	}
}

// result tells a model how the command ended. The output of the command is apart from our own
// words, which it could imitate.
func (d *done) result() *mcp.CallToolResult {
	var b strings.Builder
	fmt.Fprintf(&b, "exit code %d", d.exit.Code)
	switch d.exit.Reason {
	case api.ReasonTimeout:
		b.WriteString(": it was ended after its time-out")
	case api.ReasonOutOfMemory:
		b.WriteString(": it was ended because the sandbox reached its limit of memory")
	case api.ReasonStopped:
		b.WriteString(": it was ended because the user stopped the sandbox")
	}
	for _, o := range []struct {
		name string
		*output
	}{{"stdout", &d.stdout}, {"stderr", &d.stderr}} {
		if o.total > 0 {
			fmt.Fprintf(&b, "; %s: %d bytes", o.name, o.total)
		}
		if omitted := o.omitted(); omitted > 0 {
			fmt.Fprintf(&b, ", %d of them left out in the middle", omitted)
		}
	}
	b.WriteString(refusals(d.exit.Refused))
	content := []mcp.Content{&mcp.TextContent{Text: b.String()}}
	for _, o := range []*output{&d.stdout, &d.stderr} {
		if o.total > 0 {
			content = append(content, &mcp.TextContent{Text: o.text()})
		}
	}
	return &mcp.CallToolResult{Content: content}
}

// maxRefusals is how many refusals a result names.
const maxRefusals = 10

// refusals says what the policy refused at paths that it shows. Of hidden ones nothing is said.
func refusals(list []audit.PermissionDenied) string {
	var b strings.Builder
	n := 0
	for _, r := range list {
		if r.Permission == policy.None.String() {
			continue
		}
		if n++; n > maxRefusals {
			continue
		}
		where := strings.TrimPrefix(vpath.Escape(string(r.Path)), "/")
		if r.Mount != "" {
			where = r.Mount + ":/" + where
		}
		fmt.Fprintf(&b, "\nrefused: %s %s, which the policy shows as %s", r.Operation, where, r.Permission)
	}
	if n > maxRefusals {
		fmt.Fprintf(&b, "\nand %d more refusals", n-maxRefusals)
	}
	return b.String()
}

// output keeps the beginning and the end of what a command writes.
type output struct {
	most  int64
	meter *meter

	total      int64
	head, tail []byte
}

// Write keeps what there is room for.
func (o *output) Write(data []byte) (int, error) {
	n := len(data)
	o.total += int64(n)
	o.meter.add(n)
	half := int(o.most / 2)
	if room := half - len(o.head); room > 0 {
		take := min(room, len(data))
		o.head, data = append(o.head, data[:take]...), data[take:]
	}
	if len(data) > half {
		data, o.tail = data[len(data)-half:], o.tail[:0]
	}
	o.tail = append(o.tail, data...)
	if drop := len(o.tail) - half; drop > half { // seldom: it copies
		o.tail = append(o.tail[:0], o.tail[drop:]...)
	}
	return n, nil
}

// omitted is how much was not kept.
func (o *output) omitted() int64 {
	return o.total - int64(len(o.head)) - int64(len(o.kept()))
}

// kept is the end.
func (o *output) kept() []byte { return o.tail[max(0, len(o.tail)-int(o.most/2)):] }

func (o *output) text() string {
	between := ""
	if n := o.omitted(); n > 0 {
		between = fmt.Sprintf("\n[… %d bytes left out …]\n", n)
	}
	return strings.ToValidUTF8(string(o.head), "\ufffd") + between + strings.ToValidUTF8(string(o.kept()), "\ufffd")
}

// meter counts the output of a command.
type meter struct {
	note  func(total int64)
	mu    sync.Mutex
	total int64
}

func (m *meter) add(n int) {
	m.mu.Lock()
	m.total += int64(n)
	total := m.total
	m.mu.Unlock()
	m.note(total)
}

// progress tells a client that a command goes on.
type progress struct {
	output chan int64 // the newest total
	over   chan struct{}
	done   chan struct{}
}

// progressPause is the time between two notifications.
const progressPause = time.Second

// progressOf begins to notify the client of a request, if it wants that.
func progressOf(ctx context.Context, request *mcp.CallToolRequest) *progress {
	p := &progress{output: make(chan int64, 1), over: make(chan struct{}), done: make(chan struct{})}
	token := request.Params.GetProgressToken()
	if token == nil {
		close(p.done)
		return p
	}
	go func() {
		defer close(p.done)
		p.notify(func(running time.Duration, total int64) error {
			return request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: running.Seconds(),
				Message: fmt.Sprintf("running for %s, %d bytes of output", running.Round(time.Second), total),
			})
		})
	}()
	return p
}

// notify calls send with the first output and then from time to time, until the command is over
// or the client is gone.
func (p *progress) notify(send func(running time.Duration, total int64) error) {
	began, total, first := time.Now(), int64(0), true
	tick := time.NewTicker(progressPause)
	defer tick.Stop()
	for {
		select {
		case <-p.over:
			return
		case total = <-p.output:
			if !first {
				continue
			}
			first = false
		case <-tick.C:
		}
		if send(time.Since(began), total) != nil {
			return
		}
	}
}

// note is told of output. It never waits.
func (p *progress) note(total int64) {
	select {
	case <-p.output:
	default:
	}
	select {
	case p.output <- total:
	default:
	}
}

// end ends the notifications: after the result the client expects none.
func (p *progress) end() {
	close(p.over)
	<-p.done
}
