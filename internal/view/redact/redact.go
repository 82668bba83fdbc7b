// Package redact masks the values of configuration files. A program that insists on such a
// file finds each key, and learns nothing of the values.
//
// What it promises: a masked file has the keys and the structure of the original, in the order
// of the original (TOML: sorted). It has no comment and no value. Neither its bytes nor its size
// depend on a value, but for its type. In a list, values that follow each other become one,
// because the length of a list of numbers can be that of a key. What is not certain to have one
// reading is an error, and so is what exceeds the bounds. Keys are shown: a secret used as a key
// is not masked.
//
// The package is pure. It returns no error that quotes the content.
package redact

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// The bounds of a file. What exceeds one of them is an error.
const (
	// MaxBytes is the size of the largest file.
	MaxBytes = 1 << 20
	// maxOutput is the size of the largest masked file.
	maxOutput = 4 << 20
	// maxDepth is how deep lists and mappings may be nested.
	maxDepth = 100
)

// The masks. A mask has the type of the value.
const (
	maskText   = "***"
	maskNumber = "0"
	maskBool   = "false"
)

var (
	errTooLarge = fmt.Errorf("the file is larger than %d bytes, or would be when masked", MaxBytes)
	errTooDeep  = fmt.Errorf("lists and mappings are nested more than %d times", maxDepth)
	errText     = errors.New("the file is not UTF-8 text")
)

// begin checks what all formats but env have in common, and removes a byte order mark.
func begin(content []byte) ([]byte, error) {
	switch {
	case len(content) > MaxBytes:
		return nil, errTooLarge
	case !utf8.Valid(content):
		return nil, errText
	}
	return trimMark(content), nil
}

func trimMark(content []byte) []byte { return bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")) }

// bounded is a buffer that refuses more than maxOutput bytes.
type bounded struct{ bytes.Buffer }

// Write appends b. Its error is errTooLarge.
func (o *bounded) Write(b []byte) (int, error) {
	if o.Len()+len(b) > maxOutput {
		return 0, errTooLarge
	}
	return o.Buffer.Write(b)
}

// text is Write for a string, without the count.
func (o *bounded) text(s string) error {
	_, err := o.Write([]byte(s))
	return err
}
