package fdmessage

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// marshal is json.Marshal for a message, which is mostly a struct of many optional fields.
// Package json prepares for the types of all fields, those in them too, before it writes a struct
// for the first time. For a process that sends one message this takes longer than all else, so
// marshal leaves out empty fields before.
func marshal(message any) ([]byte, error) {
	v := reflect.ValueOf(message)
	if v.Kind() != reflect.Struct || !isPlain(v.Type()) {
		return json.Marshal(message)
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if option == "omitempty" && isEmpty(v.Field(i)) {
			continue
		}
		value, err := json.Marshal(v.Field(i).Interface())
		if err != nil {
			return nil, err
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + name + `":`)
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// isPlain reports whether each field of t has a name for JSON, with no option but omitempty, and t
// no encoding of its own.
func isPlain(t reflect.Type) bool {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || f.Anonymous || name == "" || name == "-" || option != "" && option != "omitempty" {
			return false
		}
	}
	return true
}

// isEmpty is what omitempty means.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}
