package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// execStream runs a command and sends its output as events.
func (g *gateway) execStream(w http.ResponseWriter, r *http.Request, sandboxID string) {
	request := &sandboxv1.ExecRequest{}
	g.sendOutput(w, r, sandboxv1.SandboxService_ExecStream_FullMethodName, request, func(ctx context.Context) (outputStream, error) {
		request.SandboxId = sandboxID // overrides the body
		return g.sandboxes.ExecStream(ctx, request)
	})
}

// sessionExecStream runs a command in a session and sends its output as events.
func (g *gateway) sessionExecStream(w http.ResponseWriter, r *http.Request, sessionID string) {
	request := &sandboxv1.SessionExecRequest{}
	g.sendOutput(w, r, sandboxv1.SandboxService_SessionExecStream_FullMethodName, request, func(ctx context.Context) (outputStream, error) {
		request.SessionId = sessionID // overrides the body
		return g.sandboxes.SessionExecStream(ctx, request)
	})
}

type outputStream = grpc.ServerStreamingClient[sandboxv1.ExecOutput]

// sendOutput reads request from r's body, and then sends the stream of open.
func (g *gateway) sendOutput(w http.ResponseWriter, r *http.Request, method string, request proto.Message, open func(context.Context) (outputStream, error)) {
	g.boundBody(w, r, g.o.MaxBodyBytes)
	ctx, err := g.call(r, method)
	if err == nil {
		err = decode(r.Body, request)
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	var o output
	stream(ctx, g, w, r, source[sandboxv1.ExecOutput]{open: open, emit: o.emit, end: o.end})
}

// output converts a command's output to events. A character that is split between two messages is
// sent in one event.
type output struct {
	held   map[string][]byte // by event: the first bytes of a character
	exited bool
}

// outputData is the data of an event "stdout" or "stderr": one of the two.
type outputData struct {
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"` // output that is not UTF-8
}

// startedData is the data of an event "started", for a command that can be resumed.
type startedData struct {
	ExecID string `json:"execId"`
}

// exitData is the data of an event "exit".
type exitData struct {
	ExitCode      int32             `json:"exitCode"`
	Conflicts     []string          `json:"conflicts"`
	ConflictCount int64             `json:"conflictCount,string"`
	ExecID        string            `json:"execId"`
	Denied        []json.RawMessage `json:"denied"`
	DeniedCount   int64             `json:"deniedCount,string"`
	Changed       []json.RawMessage `json:"changed"`
	ChangedCount  int64             `json:"changedCount,string"`
	SyncHeld      bool              `json:"syncHeld"`
	Keep          json.RawMessage   `json:"keep,omitempty"`
}

func (o *output) emit(out *events, message *sandboxv1.ExecOutput) error {
	if message.GetExecId() != "" && message.ExitCode == nil {
		data, err := eventData(startedData{message.GetExecId()})
		if err == nil {
			err = out.send("started", data)
		}
		if err != nil {
			return err
		}
	}
	name := "stdout"
	if message.GetType() == sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR {
		name = "stderr"
	}
	if len(message.GetData()) > 0 {
		whole, rest := cutPartial(append(o.held[name], message.GetData()...))
		o.hold(name, rest)
		if err := sendData(out, name, whole); err != nil {
			return err
		}
	}
	if message.ExitCode == nil {
		return nil
	}
	o.exited = true
	if err := o.release(out); err != nil {
		return err
	}
	return sendExit(out, message)
}

func sendExit(out *events, message *sandboxv1.ExecOutput) error {
	denied, err := rawOf(message.GetDenied())
	if err != nil {
		return err
	}
	changed, err := rawOf(message.GetChanged())
	if err != nil {
		return err
	}
	var keep json.RawMessage
	if m := message.GetKeep(); m != nil {
		all, err := rawOf([]*sandboxv1.KeepResult{m})
		if err != nil {
			return err
		}
		keep = all[0]
	}
	data, err := eventData(exitData{
		ExitCode:      message.GetExitCode(),
		Conflicts:     append([]string{}, message.GetConflicts()...),
		ConflictCount: message.GetConflictCount(),
		ExecID:        message.GetExecId(),
		Denied:        denied, DeniedCount: message.GetDeniedCount(),
		Changed: changed, ChangedCount: message.GetChangedCount(), SyncHeld: message.GetSyncHeld(), Keep: keep,
	})
	if err != nil {
		return err
	}
	return out.send("exit", data)
}

// rawOf returns messages in the same JSON as in the answers of other calls.
func rawOf[M proto.Message](messages []M) ([]json.RawMessage, error) {
	raw := []json.RawMessage{}
	for _, m := range messages {
		text, err := newCodec().Marshal(m)
		if err != nil {
			return nil, err
		}
		raw = append(raw, text)
	}
	return raw, nil
}

// end checks that the end of the command was sent.
func (o *output) end(out *events) error {
	if err := o.release(out); err != nil {
		return err
	}
	if !o.exited {
		return internal("exec: it ended without an exit code")
	}
	return nil
}

func (o *output) hold(name string, rest []byte) {
	if o.held == nil {
		o.held = map[string][]byte{}
	}
	o.held[name] = bytes.Clone(rest)
}

// release sends the first bytes of a character that was not completed.
func (o *output) release(out *events) error {
	for _, name := range []string{"stdout", "stderr"} {
		if err := sendData(out, name, o.held[name]); err != nil {
			return err
		}
	}
	o.held = nil
	return nil
}

func sendData(out *events, name string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	event := outputData{Text: string(data)}
	if !utf8.Valid(data) {
		event = outputData{Base64: data}
	}
	text, err := eventData(event)
	if err != nil {
		return err
	}
	return out.send(name, text)
}

// cutPartial splits off the bytes of an incomplete character at the end of data.
func cutPartial(data []byte) (whole, rest []byte) {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		at := len(data) - n
		if !utf8.RuneStart(data[at]) {
			continue
		}
		if !utf8.FullRune(data[at:]) {
			return data[:at], data[at:]
		}
		break
	}
	return data, nil
}
