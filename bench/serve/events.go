package serve

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxEventBytes bounds one line of an event stream.
const maxEventBytes = 4 << 20

// readEvents reads the output of a command that comes as server-sent events and
// tells got of its bytes.
func readEvents(r io.Reader, got func(int)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxEventBytes)
	name := ""
	exited := false
	for lines.Scan() {
		if n, is := strings.CutPrefix(lines.Text(), "event: "); is {
			name = n
			continue
		}
		data, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		var event struct {
			Text     string `json:"text"`
			Base64   []byte `json:"base64"`
			ExitCode int32  `json:"exitCode"`
			Message  string `json:"message"`
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return fmt.Errorf("event %s: %w", name, err)
		}
		switch name {
		case "stdout", "stderr":
			got(len(event.Text) + len(event.Base64))
		case "exit":
			exited = true
			if err := succeeded("the command", event.ExitCode, ""); err != nil {
				return err
			}
		default:
			return fmt.Errorf("event %s: %s", name, event.Message)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !exited {
		return errors.New("the events ended without an exit")
	}
	return nil
}
