package jsonkeys

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// CheckOne refuses a key that does not name one value. Errors: Invalid.
func CheckOne(text string) error {
	key, err := ParseKey(text)
	if err == nil && slices.ContainsFunc(key, func(n name) bool { return n.any }) {
		err = errdefs.New(errdefs.Invalid, "key %s: * stands for several values", vpath.Quote(text))
	}
	return err
}

// Get returns the value that a key names, nil if there is none or it is null. Errors: Invalid for a
// document that is too long, is no JSON object, or has a name twice; and as CheckOne. None quotes
// the document.
func Get(document []byte, text string) (json.RawMessage, error) {
	if err := CheckOne(text); err != nil {
		return nil, err
	}
	if len(document) > MaxBytes {
		return nil, errdefs.New(errdefs.Invalid, "it is larger than %d MiB", MaxBytes>>20)
	}
	_, v, _, err := parse(document)
	if err != nil {
		return nil, err
	}
	key, _ := ParseKey(text) // CheckOne has read it
	for _, n := range key {
		if !v.isObject() {
			return nil, nil
		}
		byName, err := v.byName()
		if err != nil {
			return nil, err
		}
		if v = byName[n.text]; v == nil {
			return nil, nil
		}
	}
	if bytes.Equal(v, []byte("null")) {
		return nil, nil
	}
	return json.RawMessage(v), nil
}

// Setting is a value for a key.
type Setting struct {
	Key   string
	Value json.RawMessage
}

// Set returns the document with other values. Objects that a key needs are made. Errors: as Get.
func Set(document []byte, settings ...Setting) ([]byte, error) {
	if len(document) > MaxBytes {
		return nil, errdefs.New(errdefs.Invalid, "it is larger than %d MiB", MaxBytes>>20)
	}
	before, v, after, err := parse(document)
	if err != nil {
		return nil, err
	}
	all := &change{}
	for _, s := range settings {
		if err := CheckOne(s.Key); err != nil {
			return nil, err
		}
		key, _ := ParseKey(s.Key) // CheckOne has read it
		path := make([]string, len(key))
		for i, n := range key {
			path[i] = n.text
		}
		if c := all.at(path); c != nil {
			c.set = value(s.Value)
		}
	}
	if all.members == nil {
		return document, nil
	}
	text, err := layoutOf(v).rewrite(v, all, nil)
	return slices.Concat(before, text, after), err
}
