package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

var errJSON = errors.New("the file is not one JSON value")

// JSON masks a JSON file. Comments make it an error.
func JSON(content []byte) ([]byte, error) {
	content, err := begin(content)
	if err != nil {
		return nil, err
	}
	if !json.Valid(content) {
		return nil, errJSON
	}
	m := jsonMasker{in: json.NewDecoder(bytes.NewReader(content))}
	m.in.UseNumber()
	if err := m.next(0); err != nil {
		return nil, err
	}
	if err := m.out.text("\n"); err != nil {
		return nil, err
	}
	return m.out.Bytes(), nil
}

type jsonMasker struct {
	in  *json.Decoder
	out bounded
}

// next masks the next value, which is nested depth times.
func (m *jsonMasker) next(depth int) error {
	token, err := m.in.Token()
	if err != nil {
		return errJSON
	}
	return m.mask(token, depth)
}

func (m *jsonMasker) mask(token json.Token, depth int) error {
	switch token {
	case json.Delim('{'):
		return m.object(depth + 1)
	case json.Delim('['):
		return m.list(depth + 1)
	}
	return m.out.text(jsonMask(token))
}

// jsonMask returns the mask of a value that has no parts.
func jsonMask(token json.Token) string {
	switch token.(type) {
	case json.Number:
		return maskNumber
	case bool:
		return maskBool
	case nil:
		return "null"
	}
	return `"` + maskText + `"`
}

func (m *jsonMasker) object(depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	between := "{"
	for m.in.More() {
		key, err := m.in.Token()
		if err != nil {
			return errJSON
		}
		name, err := jsonText(key)
		if err == nil {
			err = m.out.text(between + lineBreak(depth) + name + ": ")
		}
		if err == nil {
			err = m.next(depth)
		}
		if err != nil {
			return err
		}
		between = ","
	}
	return m.end(between, "{", "}", depth)
}

func jsonText(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", errJSON
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// list masks a list. Of values without parts that follow each other only the first is shown.
func (m *jsonMasker) list(depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	between, repeated := "[", false
	for m.in.More() {
		token, err := m.in.Token()
		if err != nil {
			return errJSON
		}
		_, parts := token.(json.Delim)
		if !parts && repeated {
			continue
		}
		repeated = !parts
		if err := m.out.text(between + lineBreak(depth)); err != nil {
			return err
		}
		if err := m.mask(token, depth); err != nil {
			return err
		}
		between = ","
	}
	return m.end(between, "[", "]", depth)
}

// end closes a list or an object. between is begin if it is empty.
func (m *jsonMasker) end(between, begin, end string, depth int) error {
	if _, err := m.in.Token(); err != nil {
		return errJSON
	}
	if between == begin {
		return m.out.text(begin + end)
	}
	return m.out.text(lineBreak(depth-1) + end)
}

// lineBreak begins a line of what is nested depth times.
func lineBreak(depth int) string {
	return "\n" + strings.Repeat("  ", depth)
}
