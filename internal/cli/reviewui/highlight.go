package reviewui

import (
	"strings"
	"time"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"

	"github.com/agentfense/agentfense/internal/lib/textdiff"
)

// A hostile file may make a lexer slow: what takes longer, or is larger, has no colours.
const (
	maxHighlighted = 256 << 10 // bytes of a file's hunks
	highlightTime  = 300 * time.Millisecond
)

// highlighter colours the syntax of one file.
type highlighter struct {
	lexer chroma.Lexer // nil: no colours
	bytes int
	until time.Time
}

func newHighlighter(name string) *highlighter {
	h := &highlighter{until: time.Now().Add(highlightTime)}
	if lexer := lexers.Match(name); lexer != nil {
		h.lexer = chroma.Coalesce(lexer)
	}
	return h
}

// lines returns the texts of the lines of a hunk with colours, or without.
func (h *highlighter) lines(hunk textdiff.Hunk, texts []string) []line {
	plain := make([]line, len(texts))
	for i, text := range texts {
		plain[i] = line{{text: text}}
		h.bytes += len(text)
	}
	if h.lexer == nil || h.bytes > maxHighlighted {
		return plain
	}
	out := make([]line, len(texts))
	for _, left := range []textdiff.Op{textdiff.Delete, textdiff.Insert} { // what a side lacks
		var at []int
		var side []string
		for i, l := range hunk.Lines {
			if l.Op != left {
				at, side = append(at, i), append(side, texts[i])
			}
		}
		coloured, ok := h.side(side)
		if !ok {
			h.lexer = nil
			return plain
		}
		for i, l := range coloured {
			out[at[i]] = l
		}
	}
	return out
}

// side colours the lines of one side. ok is false if the lexer does not give the same text back.
func (h *highlighter) side(texts []string) (lines []line, ok bool) {
	defer func() {
		if recover() != nil { // chroma reports an error of a lexer so
			lines, ok = nil, false
		}
	}()
	next, err := h.lexer.Tokenise(&chroma.TokeniseOptions{State: "root"}, strings.Join(texts, "\n")+"\n")
	if err != nil {
		return nil, false
	}
	lines = make([]line, 1, len(texts)+1)
	for token := next(); token != chroma.EOF; token = next() {
		if time.Now().After(h.until) {
			return nil, false
		}
		for i, piece := range strings.Split(token.Value, "\n") {
			if i > 0 {
				lines = append(lines, nil)
			}
			if piece != "" {
				last := &lines[len(lines)-1]
				*last = append(*last, span{piece, styleOf(token.Type)})
			}
		}
	}
	return checkLines(lines, texts)
}

// checkLines returns lines if they are the texts.
func checkLines(lines []line, texts []string) ([]line, bool) {
	if len(lines) < len(texts) {
		return nil, false
	}
	for i, text := range texts {
		var b strings.Builder
		for _, s := range lines[i] {
			b.WriteString(s.text)
		}
		if b.String() != text {
			return nil, false
		}
	}
	return lines[:len(texts)], true
}

// styleOf is the style of a kind of token, in the colours of the terminal's own palette.
func styleOf(t chroma.TokenType) string {
	switch {
	case t.InCategory(chroma.Comment):
		return "3;90"
	case t.InCategory(chroma.Keyword):
		return "35"
	case t.InSubCategory(chroma.LiteralString):
		return "33"
	case t.InSubCategory(chroma.LiteralNumber):
		return "36"
	case t == chroma.NameFunction, t == chroma.NameClass, t == chroma.NameTag, t == chroma.NameBuiltin:
		return "34"
	}
	return ""
}
