package api

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/board"
)

// LocksChanged is a change of the locks of a source. After OpLocks a connection carries nothing
// else, in a binary form: an answer is awaited from each sandbox of the source, and JSON takes
// longer than the rest.
type LocksChanged struct {
	board.Change
	// Rules is the version of the policy of the sandbox that has locked. Each change of its rules
	// makes it greater.
	Rules uint64
}

// appendTo appends c as it is sent: nothing for nil, by which the table is to be read.
func (c *LocksChanged) appendTo(text []byte) []byte {
	if c == nil {
		return text
	}
	return c.Append(binary.AppendUvarint(text, c.Rules))
}

func parseChange(text []byte) (*LocksChanged, error) {
	if len(text) == 0 {
		return nil, nil
	}
	rules, n := binary.Uvarint(text)
	if n <= 0 {
		return nil, errdefs.New(errdefs.Invalid, "locks: incomplete message")
	}
	change, err := board.ParseChange(text[n:])
	return &LocksChanged{Change: change, Rules: rules}, err
}

// ServeLocks calls follow with each change that the client at c tells, nil for one by which the
// table is to be read, and answers. It returns when the client leaves, or after follow has closed
// c.
func ServeLocks(c Conn, follow func(*LocksChanged) error) error {
	from := bufio.NewReader(c)
	for {
		text, err := messages.ReceiveText(from)
		if err != nil {
			return err
		}
		change, err := parseChange(text)
		if err == nil {
			err = follow(change)
		}
		if err = sendFollowed(c, err); err != nil {
			return err
		}
	}
}

// sendFollowed answers: with nothing, or with the reason why the change is not followed.
func sendFollowed(c Conn, refusal error) error {
	var text []byte
	if refusal != nil {
		var err error
		if text, err = json.Marshal(FailureOf(refusal)); err != nil {
			return err
		}
	}
	return messages.SendText(c.UnixConn, text)
}

func receiveFollowed(from io.Reader) (refusal *failure, err error) {
	text, err := messages.ReceiveText(from)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	refusal = &failure{}
	return refusal, json.Unmarshal(text, refusal)
}
