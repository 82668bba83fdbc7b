package board

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

const (
	// MaxText bounds the text of a message, in bytes.
	MaxText = 4 << 10
	// MaxPage is how many messages one answer has.
	MaxPage = 200
	// DefaultTopic is the topic of a message that names none.
	DefaultTopic = "general"
	// StatusTopic is the topic in which a sandbox says what it works on. The last such message
	// while the sandbox runs is its status.
	StatusTopic = "status"
)

// Sender says who had a sandbox post a message.
type Sender string

// The senders.
const (
	// ByAgent is a program inside, or an agent that works in the sandbox from outside.
	ByAgent Sender = "agent"
	// ByUser is whoever may control the sandbox.
	ByUser Sender = "user"
)

// Message is what a sandbox tells the others. All but Topic and Text is set by its supervisor.
type Message struct {
	Seq     uint64    `json:"seq"` // above that of each message before
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox"`
	ID      record.ID `json:"sandbox_id"`
	By      Sender    `json:"by"`
	Topic   string    `json:"topic"`
	// Text is what the sender wrote: data, which may hold anything.
	Text string `json:"text"`
}

// Draft is a message before it is posted.
type Draft struct {
	By    Sender `json:"by"`
	Topic string `json:"topic,omitempty"` // "": DefaultTopic
	Text  string `json:"text"`
}

// Query chooses messages.
type Query struct {
	After uint64 // those with a higher number. If no message has it, the board is a new one: all.
	Topic string // "": of every topic
	Limit int    // at most so many, the oldest; 0: MaxPage
}

// Check refuses a query that means nothing. Errors: Invalid.
func (q Query) Check() error {
	if q.Limit < 0 {
		return errdefs.New(errdefs.Invalid, "limit %d: want a number above 0", q.Limit)
	}
	if q.Topic == "" {
		return nil
	}
	return CheckTopic(q.Topic)
}

// Page are messages in their order.
type Page struct {
	Messages []Message
	// Next is the After of the query for those that follow.
	Next uint64
	// Lost is how many messages of all topics followed the query's After and are no longer kept.
	Lost uint64
}

var topicPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`) })

// CheckTopic refuses what no topic is called. Errors: Invalid.
func CheckTopic(topic string) error {
	if !topicPattern().MatchString(topic) {
		return errdefs.New(errdefs.Invalid, "topic %s: want at most 64 of a-z, 0-9, '.', '_' and '-', of which the first is a letter or a digit", vpath.Quote(topic[:min(len(topic), 80)]))
	}
	return nil
}

// Check refuses what cannot be posted. Errors: Invalid; Exhausted.
func (d Draft) Check() error {
	switch {
	case len(d.Text) > MaxText:
		return errdefs.New(errdefs.Exhausted, "message: %d bytes: want at most %d", len(d.Text), MaxText)
	case !utf8.ValidString(d.Text):
		return errdefs.New(errdefs.Invalid, "message: the text is not UTF-8")
	case strings.TrimSpace(d.Text) == "":
		return errdefs.New(errdefs.Invalid, "message: the text is empty")
	}
	return CheckTopic(d.Topic)
}

// bounds of what a board keeps. The oldest messages go first.
type bounds struct {
	fileBytes  int           // of the file; when it is larger, messages go until the rest holds
	bytes      int           // of all messages, as they are stored
	messages   int           // of all sandboxes
	ofSandbox  int           // messages of one sandbox
	sandboxCut int           // bytes of one sandbox
	topics     int           // those that were used last
	age        time.Duration // of a message
}

// kept are the bounds of every board.
var kept = bounds{
	fileBytes: 1 << 20, bytes: 512 << 10, messages: 1000, ofSandbox: 250, sandboxCut: 128 << 10, topics: 64, age: 7 * 24 * time.Hour,
}

// stored is a message with its line of the file.
type stored struct {
	Message
	line []byte // with its end
}

// trim returns the lines that stay of the messages, which are in order.
func (k bounds) trim(all []stored, now time.Time) []stored {
	type share struct{ messages, bytes int }
	ofSandbox, topics, total := map[record.ID]share{}, map[string]bool{}, share{}
	var stay []stored
	for i, m := range slices.Backward(all) {
		own := ofSandbox[m.ID]
		own.messages, own.bytes = own.messages+1, own.bytes+len(m.line)
		newest := i == len(all)-1 // it has the number from which the next one follows
		total.messages, total.bytes = total.messages+1, total.bytes+len(m.line)
		if !newest && (total.messages > k.messages || total.bytes > k.bytes || k.isOld(m.Message, now)) {
			break
		}
		if !newest && (own.messages > k.ofSandbox || own.bytes > k.sandboxCut || !topics[m.Topic] && len(topics) == k.topics) {
			total.messages, total.bytes = total.messages-1, total.bytes-len(m.line)
			continue
		}
		ofSandbox[m.ID], topics[m.Topic] = own, true
		stay = append(stay, m)
	}
	slices.Reverse(stay)
	return stay
}

func (k bounds) isOld(m Message, now time.Time) bool { return now.Sub(m.Time) > k.age }

// parse reads the lines of a file backwards while want is true of them, and returns them in order.
// A line that a killed process left incomplete is passed over.
func parse(text []byte, want func(Message) bool) []stored {
	var list []stored
	for end := bytes.LastIndexByte(text, '\n'); end >= 0; {
		begin := bytes.LastIndexByte(text[:end], '\n') + 1
		line := text[begin : end+1]
		var m Message
		if json.Unmarshal(line, &m) == nil && m.Seq > 0 {
			if !want(m) {
				break
			}
			list = append(list, stored{m, line})
		}
		end = begin - 1
	}
	slices.Reverse(list)
	return list
}
