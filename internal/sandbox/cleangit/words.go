package cleangit

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/agentfense/agentfense/internal/sandbox/gitrun"
)

// An abbreviation of an id in a message has so many digits at least, as git's default has it.
var hexWord = regexp.MustCompile(`[0-9a-fA-F]{7,}`)

// lookup asks git what the ids in messages are.
type lookup struct {
	process *gitrun.Process
	out     *bufio.Reader
	digits  int
	known   map[string]string // object of a word, "" for a word that names none
}

func (g *git) newLookup(ctx context.Context, digits int) (*lookup, error) {
	p, err := g.Start(ctx, "work", "cat-file", "--batch-check=%(objectname)")
	if err != nil {
		return nil, err
	}
	return &lookup{process: p, out: bufio.NewReader(p.Out), digits: digits, known: map[string]string{}}, nil
}

// object returns the object that a word names, "-" if it names several, and "" if it names none.
func (l *lookup) object(word string) (string, error) {
	word = strings.ToLower(word)
	if id, ok := l.known[word]; ok {
		return id, nil
	}
	if _, err := fmt.Fprintln(l.process.In, word); err != nil {
		return "", badStream("cat-file: %w", err)
	}
	line, err := l.out.ReadString('\n')
	if err != nil {
		return "", badStream("cat-file: %w", err)
	}
	id := ""
	switch fields := strings.Fields(line); {
	case len(fields) == 1:
		id = fields[0]
	case len(fields) == 2 && fields[1] != "missing":
		id = "-"
	}
	l.known[word] = id
	return id, nil
}

// replace returns a message in which ids of commits of the source are those of the clean
// repository. The id of another object, and an unknown one in full, becomes zeros: the id of what
// has hidden files depends on their content.
func (l *lookup) replace(message []byte, clean map[string]string) ([]byte, error) {
	var failure error
	out := hexWord.ReplaceAllFunc(message, func(word []byte) []byte {
		if failure != nil || len(word) > l.digits {
			return word
		}
		id, err := l.object(string(word))
		if err != nil {
			failure = err
			return word
		}
		if id == "" && len(word) < l.digits {
			return word
		}
		if now := clean[id]; now != "" {
			return []byte(now[:len(word)])
		}
		return bytes.Repeat([]byte{'0'}, len(word))
	})
	return out, failure
}
