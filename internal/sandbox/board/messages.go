package board

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

const (
	messagesFile = "messages.jsonl"
	// maxMessagesBytes bounds what is read of the file: more than bounds.fileBytes and a message.
	maxMessagesBytes = 4 << 20
)

// Post appends a message of the sandbox of h, which is a member. Errors: those of Draft.Check.
func (b *Board) Post(h Holder, d Draft) (Message, error) {
	d.Topic = cmp.Or(d.Topic, DefaultTopic)
	if err := d.Check(); err != nil {
		return Message{}, err
	}
	m := Message{Sandbox: h.Name, ID: h.ID, By: d.By, Topic: d.Topic, Text: d.Text}
	err := b.locked(func() error {
		text, err := b.readMessages()
		if err != nil {
			return err
		}
		m.Time = time.Now().UTC()
		if last := lastOf(text); last != nil {
			m.Seq = last.Seq
			if m.Time.Before(last.Time) { // the clock was set back
				m.Time = last.Time
			}
		}
		m.Seq++
		post := func() error { return b.appendMessage(text, m) }
		if m.Topic == StatusTopic {
			return b.setStatus(m, post)
		}
		return post()
	})
	return m, err
}

// appendMessage adds m to the file, which has text. The board is locked.
func (b *Board) appendMessage(text []byte, m Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return errdefs.New(errdefs.Internal, "board: %w", err)
	}
	line = append(line, '\n')
	whole := bytes.LastIndexByte(text, '\n') + 1 // without what a killed process left
	if len(text)+len(line) > kept.fileBytes {
		all := append(parse(text, func(Message) bool { return true }), stored{m, line})
		var file []byte
		for _, s := range kept.trim(all, m.Time) {
			file = append(file, s.line...)
		}
		return b.replace(messagesFile, file)
	}
	f, err := os.OpenFile(filepath.Join(b.dir, messagesFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return record.HostError("board", err)
	}
	defer f.Close()
	if whole < len(text) {
		err = f.Truncate(int64(whole))
	}
	if err == nil {
		_, err = f.WriteAt(line, int64(whole))
	}
	if err != nil {
		return record.HostError("board", errors.Join(err, f.Truncate(int64(whole))))
	}
	return nil
}

// lastOf returns the last message of a file, nil if there is none.
func lastOf(text []byte) *Message {
	n := 0
	list := parse(text, func(Message) bool { n++; return n == 1 })
	if len(list) == 0 {
		return nil
	}
	return &list[0].Message
}

func (b *Board) readMessages() ([]byte, error) {
	text, err := safefs.ReadRegularIn(b.dir, messagesFile, maxMessagesBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, errdefs.New(errdefs.Internal, "board: %s cannot be read: stop the sandboxes of the source and remove it: %w", record.HostPath(filepath.Join(b.dir, messagesFile)), err)
	}
	return text, nil
}

// Read returns messages. Errors: Invalid.
func (b *Board) Read(q Query) (Page, error) {
	if err := q.Check(); err != nil {
		return Page{}, err
	}
	text, err := b.readMessages()
	if err != nil {
		return Page{}, err
	}
	p := Page{}
	last := lastOf(text)
	if last == nil {
		return p, nil
	}
	if q.After > last.Seq {
		q.After = 0
	}
	now := time.Now()
	list := parse(text, func(m Message) bool { return m.Seq > q.After && !kept.isOld(m, now) })
	if q.After > 0 {
		p.Lost = last.Seq - q.After - uint64(len(list))
	}
	p.Next = last.Seq
	limit := min(cmp.Or(q.Limit, MaxPage), MaxPage)
	for _, m := range list {
		if q.Topic != "" && m.Topic != q.Topic {
			continue
		}
		if len(p.Messages) == limit {
			p.Next = p.Messages[limit-1].Seq
			break
		}
		p.Messages = append(p.Messages, m.Message)
	}
	return p, nil
}

// Wait is Read that waits for a message if there is none, at most for the given time.
// Errors: Canceled.
func (b *Board) Wait(ctx context.Context, q Query, patience time.Duration) (Page, error) {
	w := b.watch()
	defer func() { w.close() }()
	end := time.NewTimer(patience)
	defer end.Stop()
	for {
		p, err := b.Read(q)
		if err != nil || len(p.Messages) > 0 {
			return p, err
		}
		select {
		case _, goes := <-w.news:
			if !goes { // the board was removed
				w.close()
				w = b.watch()
			}
		case <-time.After(w.pause):
			if w.news == nil { // perhaps there is one now
				w = b.watch()
			}
		case <-end.C:
			return p, nil
		case <-ctx.Done():
			return p, errdefs.New(errdefs.Canceled, "board: %w", ctx.Err())
		}
	}
}

// Topic is a topic of which messages are kept.
type Topic struct {
	Name     string
	Messages int
	Last     Message
}

// Topics returns the topics, the one that was used last first.
func (b *Board) Topics() ([]Topic, error) {
	text, err := b.readMessages()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var topics []Topic
	for _, m := range slices.Backward(parse(text, func(m Message) bool { return !kept.isOld(m, now) })) {
		i := slices.IndexFunc(topics, func(t Topic) bool { return t.Name == m.Topic })
		if i < 0 {
			if len(topics) == kept.topics {
				continue
			}
			i = len(topics)
			topics = append(topics, Topic{Name: m.Topic, Last: m.Message})
		}
		topics[i].Messages++
	}
	return topics, nil
}
