package wireconv

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// MaxMessageWait bounds how long a call waits for a message.
const MaxMessageWait = time.Minute

// LockPaths locks paths for a sandbox, or ends its locks.
type LockPaths struct {
	Sandbox id.Sandbox
	Lock    api.LockRequest
}

// DecodeLockPaths reads a request.
func DecodeLockPaths(r *sandboxv1.LockPathsRequest) (l LockPaths, err error) {
	if l.Sandbox, err = SandboxID(r); err != nil {
		return l, err
	}
	l.Lock.Advisory = r.GetAdvisory()
	if l.Lock.Paths, err = lockPaths(r.GetPaths()); err != nil {
		return l, err
	}
	if l.Lock.For, err = requestDuration("lock_for", r.GetLockFor()); err != nil {
		return l, err
	}
	if l.Lock.Wait, err = requestDuration("wait", r.GetWait()); err == nil && l.Lock.Wait > api.MaxLockWait {
		err = errdefs.New(errdefs.Invalid, "wait: %s is longer than %s", l.Lock.Wait, api.MaxLockWait)
	}
	if err == nil && len(l.Lock.Paths) == 0 {
		err = required("paths", "")
	}
	return l, err
}

// DecodeUnlockPaths reads a request.
func DecodeUnlockPaths(r *sandboxv1.UnlockPathsRequest) (l LockPaths, err error) {
	if l.Sandbox, err = SandboxID(r); err != nil {
		return l, err
	}
	l.Lock.All = r.GetAll()
	if l.Lock.Paths, err = lockPaths(r.GetPaths()); err == nil && l.Lock.All == (len(l.Lock.Paths) > 0) {
		err = errdefs.New(errdefs.Invalid, "paths: want paths or all")
	}
	return l, err
}

// EncodeLockPaths is the reverse of DecodeLockPaths.
func EncodeLockPaths(l LockPaths) *sandboxv1.LockPathsRequest {
	m := &sandboxv1.LockPathsRequest{SandboxId: string(l.Sandbox), Paths: sentPaths(l.Lock.Paths), Advisory: l.Lock.Advisory}
	if l.Lock.For > 0 {
		m.LockFor = durationpb.New(l.Lock.For)
	}
	if l.Lock.Wait > 0 {
		m.Wait = durationpb.New(l.Lock.Wait)
	}
	return m
}

// EncodeUnlockPaths is the reverse of DecodeUnlockPaths.
func EncodeUnlockPaths(l LockPaths) *sandboxv1.UnlockPathsRequest {
	return &sandboxv1.UnlockPathsRequest{SandboxId: string(l.Sandbox), Paths: sentPaths(l.Lock.Paths), All: l.Lock.All}
}

// lockPaths reads paths as supervisors take them. An empty path is an error, as in requestPaths.
func lockPaths(texts []string) ([]string, error) {
	paths, err := requestPaths(texts)
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	return api.PathTexts(paths), nil
}

// sentPaths are paths for lockPaths.
func sentPaths(texts []string) []string {
	var out []string
	for _, text := range texts {
		if text == "" {
			text = "/"
		}
		out = append(out, text)
	}
	return out
}

// EncodeLocks returns locks.
func EncodeLocks(list []board.Entry) *sandboxv1.ListLocksResponse {
	m := &sandboxv1.ListLocksResponse{}
	for _, l := range list {
		m.Locks = append(m.Locks, &sandboxv1.PathLock{
			Sandbox: l.Sandbox, Path: l.Path, Own: l.Own, Advisory: l.Advisory, Waits: l.Waits, Since: encodeTime(l.Since), Until: encodeTime(l.Until),
		})
	}
	return m
}

// DecodeLocks is the reverse of EncodeLocks.
func DecodeLocks(m *sandboxv1.ListLocksResponse) []board.Entry {
	var list []board.Entry
	for _, l := range m.GetLocks() {
		list = append(list, board.Entry{
			Sandbox: vpath.Escape(l.Sandbox), Path: l.Path, Own: l.Own, Advisory: l.Advisory, Waits: l.Waits, Since: decodeTime(l.Since), Until: decodeTime(l.Until),
		})
	}
	return list
}

// PostMessage posts a message for a sandbox.
type PostMessage struct {
	Sandbox id.Sandbox
	Draft   board.Draft
}

// DecodePostMessage reads a request.
func DecodePostMessage(r *sandboxv1.PostMessageRequest) (p PostMessage, err error) {
	p.Draft = board.Draft{By: board.ByUser, Topic: r.GetTopic(), Text: r.GetText()}
	if r.GetAsAgent() {
		p.Draft.By = board.ByAgent
	}
	if p.Draft.Topic == "" {
		p.Draft.Topic = board.DefaultTopic
	}
	if p.Sandbox, err = SandboxID(r); err == nil {
		err = p.Draft.Check()
	}
	return p, err
}

// EncodePostMessage is the reverse of DecodePostMessage.
func EncodePostMessage(p PostMessage) *sandboxv1.PostMessageRequest {
	return &sandboxv1.PostMessageRequest{SandboxId: string(p.Sandbox), Topic: p.Draft.Topic, Text: p.Draft.Text, AsAgent: p.Draft.By == board.ByAgent}
}

// ReadMessages asks for messages.
type ReadMessages struct {
	Sandbox id.Sandbox
	Query   board.Query
	Wait    time.Duration
}

// DecodeReadMessages reads a request.
func DecodeReadMessages(r *sandboxv1.ReadMessagesRequest) (q ReadMessages, err error) {
	q.Query = board.Query{After: r.GetAfter(), Topic: r.GetTopic(), Limit: int(r.GetLimit())}
	if q.Sandbox, err = SandboxID(r); err != nil {
		return q, err
	}
	if err = q.Query.Check(); err != nil {
		return q, err
	}
	if q.Wait, err = requestDuration("wait", r.GetWait()); err == nil && q.Wait > MaxMessageWait {
		err = errdefs.New(errdefs.Invalid, "wait: %s is longer than %s", q.Wait, MaxMessageWait)
	}
	return q, err
}

// DecodeWatchMessages reads a request.
func DecodeWatchMessages(r *sandboxv1.WatchMessagesRequest) (q ReadMessages, err error) {
	q.Query = board.Query{After: r.GetAfter(), Topic: r.GetTopic()}
	if q.Sandbox, err = SandboxID(r); err == nil {
		err = q.Query.Check()
	}
	return q, err
}

// EncodePage returns messages.
func EncodePage(p board.Page) *sandboxv1.ReadMessagesResponse {
	m := &sandboxv1.ReadMessagesResponse{Next: p.Next, Lost: p.Lost}
	for i := range p.Messages {
		m.Messages = append(m.Messages, encodeMessage(&p.Messages[i]))
	}
	return m
}

// DecodePage is the reverse of EncodePage.
func DecodePage(m *sandboxv1.ReadMessagesResponse) board.Page {
	p := board.Page{Next: m.GetNext(), Lost: m.GetLost()}
	for _, sent := range m.GetMessages() {
		p.Messages = append(p.Messages, *decodeMessage(sent))
	}
	return p
}

func encodeMessage(m *board.Message) *sandboxv1.BoardMessage {
	if m == nil {
		return nil
	}
	return &sandboxv1.BoardMessage{
		Seq: m.Seq, Time: encodeTime(m.Time), Sandbox: m.Sandbox, SandboxId: string(m.ID), By: string(m.By), Topic: m.Topic, Text: m.Text,
	}
}

func decodeMessage(m *sandboxv1.BoardMessage) *board.Message {
	if m == nil {
		return nil
	}
	return &board.Message{
		Seq: m.Seq, Time: decodeTime(m.Time), Sandbox: m.Sandbox, ID: record.ID(m.SandboxId), By: board.Sender(m.By), Topic: m.Topic, Text: m.Text,
	}
}

// EncodeBoard returns who uses a board, and for what.
func EncodeBoard(s board.State) *sandboxv1.Board {
	m := &sandboxv1.Board{}
	for _, member := range s.Members {
		m.Members = append(m.Members, &sandboxv1.BoardMember{Sandbox: member.Name, SandboxId: string(member.ID), Status: encodeMessage(member.Status)})
	}
	for _, t := range s.Topics {
		m.Topics = append(m.Topics, &sandboxv1.BoardTopic{Topic: t.Name, Messages: int32(t.Messages), Last: encodeMessage(&t.Last)})
	}
	return m
}

// DecodeBoard is the reverse of EncodeBoard.
func DecodeBoard(m *sandboxv1.Board) board.State {
	var s board.State
	for _, member := range m.GetMembers() {
		s.Members = append(s.Members, board.Member{Name: vpath.Escape(member.Sandbox), ID: record.ID(member.SandboxId), Status: decodeMessage(member.Status)})
	}
	for _, t := range m.GetTopics() {
		topic := board.Topic{Name: vpath.Escape(t.Topic), Messages: int(t.Messages)}
		if last := decodeMessage(t.Last); last != nil {
			topic.Last = *last
		}
		s.Topics = append(s.Topics, topic)
	}
	return s
}
