package query

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Check refuses what is not one statement that reads. The connection is read-only; this keeps
// statements out that act elsewhere, such as VACUUM INTO and PRAGMA. Errors: Invalid.
func Check(statement string) error {
	word, err := firstWord(statement)
	if err != nil {
		return err
	}
	switch strings.ToUpper(word) {
	case "SELECT", "WITH", "VALUES":
		return nil
	}
	return errdefs.New(errdefs.Invalid, "sql: want one statement that begins with SELECT, WITH or VALUES")
}

// space are the characters that SQLite skips (sqlite3CtypeMap).
const space = " \t\n\f\r"

// firstWord returns the first word of a statement. Errors: Invalid for what could hide a second
// statement: text after a semicolon, a zero byte, and a string or comment without an end.
func firstWord(statement string) (string, error) {
	if strings.IndexByte(statement, 0) >= 0 {
		return "", errdefs.New(errdefs.Invalid, "sql: the statement has a zero byte")
	}
	first, ended := "", false
	for rest := statement; rest != ""; {
		token, after, err := nextToken(rest)
		if err != nil {
			return "", err
		}
		rest = after
		switch {
		case token == "": // space or a comment
		case token == ";":
			ended = true
		case ended:
			return "", errdefs.New(errdefs.Invalid, "sql: want one statement, but text follows the semicolon")
		case first == "":
			first = token
		}
	}
	return first, nil
}

// nextToken returns the first token of text, which is not empty, and what follows. Space and
// comments are an empty token.
func nextToken(text string) (token, rest string, err error) {
	switch {
	case strings.IndexByte(space, text[0]) >= 0:
		return "", strings.TrimLeft(text, space), nil
	case strings.HasPrefix(text, "--"):
		_, rest, _ := strings.Cut(text, "\n")
		return "", rest, nil
	case strings.HasPrefix(text, "/*"):
		_, rest, found := strings.Cut(text[2:], "*/")
		if !found {
			return "", "", unclosed("/*")
		}
		return "", rest, nil
	case strings.IndexByte("'\"`[", text[0]) >= 0:
		return quoted(text)
	}
	n := 0
	for n < len(text) && isWordByte(text[n]) {
		n++
	}
	n = max(n, 1)
	return text[:n], text[n:], nil
}

// quoted returns a string or a quoted name. A doubled quote makes two tokens, which is the same
// here.
func quoted(text string) (token, rest string, err error) {
	end := text[0]
	if end == '[' {
		end = ']'
	}
	n := strings.IndexByte(text[1:], end)
	if n < 0 {
		return "", "", unclosed(text[:1])
	}
	return text[:n+2], text[n+2:], nil
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func unclosed(mark string) error {
	return errdefs.New(errdefs.Invalid, "sql: %s has no end", mark)
}
