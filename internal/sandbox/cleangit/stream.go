package cleangit

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
)

// cleanRef is the ref in the repository "work" of what is made of the source's commit,
// gitrun.HeadRef.
const cleanRef = branches + "clean"

// maxMessage bounds the message of a commit, in bytes.
const maxMessage = 16 << 20

// commit is a commit of the stream that fast-export writes.
type commit struct {
	mark, real string
	header     [][]byte // author, committer, encoding
	message    []byte
	parents    []string // marks
	changes    []change
}

// change is a line M or D.
type change struct {
	line []byte
	path string
}

// stream filters what fast-export writes.
type stream struct {
	in  *bufio.Reader
	out *bufio.Writer // to fast-import
	ids *bufio.Reader // from fast-import

	shows   func(path string) bool
	message func([]byte) ([]byte, error)
	// first tells of a commit its first parent, "" without one. It may be left out of the stream.
	first map[string]string

	marks  map[string]string // of a commit of the source: the mark of what it became
	clean  map[string]string // likewise: the id
	reals  map[string]string // of a mark: the commit of the source
	order  []pair
	paths  map[string]bool // those that are shown
	hidden bool            // a path was left out
}

// pair is a commit of the clean repository and the one that it was made of.
type pair struct{ clean, real string }

// run reads the whole stream.
func (s *stream) run() error {
	var c *commit
	for {
		line, err := s.in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil {
			return badStream("it ends within a line")
		}
		line = bytes.TrimSuffix(line, []byte{'\n'})
		word, rest, _ := bytes.Cut(line, []byte{' '})
		switch string(word) {
		case "", "reset", "done", "feature", "progress":
			continue
		case "commit":
			if err := s.finish(c); err != nil {
				return err
			}
			c = &commit{}
			continue
		}
		if c == nil {
			return badStream("%q outside of a commit", word)
		}
		if err := s.read(c, string(word), rest, line); err != nil {
			return err
		}
	}
	if err := s.finish(c); err != nil {
		return err
	}
	s.out.WriteString("done\n")
	return hostError(s.out.Flush())
}

// read reads a line of a commit. Unknown ones are refused, so that nothing passes unchecked.
func (s *stream) read(c *commit, word string, rest, line []byte) (err error) {
	switch word {
	case "mark":
		c.mark = string(rest)
	case "original-oid":
		c.real = string(rest)
	case "author", "committer", "encoding":
		c.header = append(c.header, line)
	case "data":
		c.message, err = s.data(rest)
	case "gpgsig": // a newer git may write it; the signature is of another commit
		_, err = s.in.ReadBytes('\n')
	case "from", "merge":
		c.parents = append(c.parents, string(rest))
	case "M":
		fields := bytes.SplitN(rest, []byte{' '}, 3)
		if len(fields) != 3 {
			return badStream("a malformed change")
		}
		return c.change(line, fields[2])
	case "D":
		return c.change(line, rest)
	default:
		return badStream("an unknown line %q", word)
	}
	return err
}

func (c *commit) change(line, quoted []byte) error {
	path, ok := unquote(string(quoted))
	if !ok {
		return badStream("a malformed path")
	}
	c.changes = append(c.changes, change{bytes.Clone(line), path})
	return nil
}

// data reads a message, whose length is in text.
func (s *stream) data(text []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 0 || n > maxMessage {
		return nil, badStream("a message of %q bytes", text)
	}
	message := make([]byte, n)
	if _, err := io.ReadFull(s.in, message); err != nil {
		return nil, badStream("it ends within a message")
	}
	return message, nil
}

// finish writes a commit that was read, without what is not shown. One of which nothing is left
// becomes its parent: its message is about hidden files alone.
func (s *stream) finish(c *commit) error {
	if c == nil {
		return nil
	}
	if c.mark == "" || c.real == "" || len(c.header) == 0 {
		return badStream("an incomplete commit")
	}
	s.reals[c.mark] = c.real
	shown := slices.DeleteFunc(slices.Clone(c.changes), func(x change) bool { return !s.shows(x.path) })
	s.hidden = s.hidden || len(shown) < len(c.changes)
	parents := s.parents(c)
	base := s.marks[s.first[c.real]]
	became := len(shown) < len(c.changes) || len(c.parents) > 1 // it was not made empty
	if len(shown) == 0 && len(parents) <= 1 && became && (len(parents) == 0 || parents[0] == base) {
		s.marks[c.real] = base
		s.clean[c.real] = s.clean[s.first[c.real]]
		return nil
	}
	message, err := s.message(c.message)
	if err != nil {
		return err
	}
	s.write(c, message, parents, base, shown)
	return s.readID(c)
}

// parents are the marks of what the commit's parents became, each once.
func (s *stream) parents(c *commit) []string {
	var parents []string
	for _, mark := range c.parents {
		if now := s.marks[s.reals[mark]]; now != "" && !slices.Contains(parents, now) {
			parents = append(parents, now)
		}
	}
	return parents
}

func (s *stream) write(c *commit, message []byte, parents []string, base string, shown []change) {
	w := s.out
	if len(parents) == 0 {
		fmt.Fprintf(w, "reset %s\n\n", cleanRef)
	}
	fmt.Fprintf(w, "commit %s\nmark %s\n", cleanRef, c.mark)
	for _, line := range c.header {
		fmt.Fprintf(w, "%s\n", line)
	}
	fmt.Fprintf(w, "data %d\n%s\n", len(message), message)
	for i, mark := range parents {
		word := "merge"
		if i == 0 {
			word = "from"
		}
		fmt.Fprintf(w, "%s %s\n", word, mark)
	}
	// The changes are relative to the first parent. Without it, they are the whole tree.
	if len(parents) > 0 && parents[0] != base {
		w.WriteString("deleteall\n")
	}
	for _, x := range shown {
		if x.line[0] == 'M' {
			s.paths[x.path] = true
		}
		fmt.Fprintf(w, "%s\n", x.line)
	}
	fmt.Fprintf(w, "\nget-mark %s\n", c.mark)
}

// readID asks for the id of the commit that was written last.
func (s *stream) readID(c *commit) error {
	if err := s.out.Flush(); err != nil {
		return errImport
	}
	line, err := s.ids.ReadString('\n')
	if err != nil {
		return errImport
	}
	s.marks[c.real], s.clean[c.real] = c.mark, strings.TrimSpace(line)
	s.order = append(s.order, pair{s.clean[c.real], c.real})
	return nil
}

// errImport says that fast-import has ended; what it complains about says why.
var errImport = errdefs.New(errdefs.Internal, "git fast-import ended early")

func badStream(format string, args ...any) error {
	return errdefs.New(errdefs.Internal, "git fast-export: %w", errdefs.New(errdefs.Internal, format, args...))
}

// shows returns what of a repository's paths a policy shows.
func shows(content func(pathOf) bool) func(string) bool {
	known := map[string]bool{}
	return func(name string) bool {
		is, ok := known[name]
		if !ok {
			p, valid := gitindex.TrackedPath("/", name)
			is = valid && content(p)
			known[name] = is
		}
		return is
	}
}

// unquote reads a path as git writes it (quote.c).
func unquote(text string) (string, bool) {
	if !strings.HasPrefix(text, `"`) {
		return text, text != ""
	}
	if len(text) < 2 || !strings.HasSuffix(text, `"`) {
		return "", false
	}
	text = text[1 : len(text)-1]
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			b.WriteByte(text[i])
			continue
		}
		if i++; i == len(text) {
			return "", false
		}
		if plain := strings.IndexByte(`abtnvfr"\`, text[i]); plain >= 0 {
			b.WriteByte("\a\b\t\n\v\f\r\"\\"[plain])
			continue
		}
		if i+3 > len(text) {
			return "", false
		}
		n, err := strconv.ParseUint(text[i:i+3], 8, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), b.Len() > 0
}
