package fdmessage

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// A message is mostly a struct of many optional fields, of which it has one or two. Package json
// prepares for the types of all fields, and of those in them, before it writes or reads a struct
// for the first time. For a process that sends one message and gets one, this takes longer than all
// else, so marshal and unmarshal have it write and read the fields that are there.

// marshal is json.Marshal.
func marshal(message any) ([]byte, error) {
	v := reflect.ValueOf(message)
	if v.Kind() != reflect.Struct || !isPlain(v.Type()) {
		return json.Marshal(message)
	}
	var b bytes.Buffer
	fields := json.NewEncoder(&b)
	b.WriteByte('{')
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if option == "omitempty" && isEmpty(v.Field(i)) {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + name + `":`)
		if err := fields.Encode(v.Field(i).Interface()); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1) // the line's end
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// sparseBytes is the size from which on a message has so much to read that the rest counts little,
// and is not worth another copy.
const sparseBytes = 64 << 10

// unmarshal is json.Unmarshal, but the names of fields must be written as they are.
func unmarshal(body []byte, message any) error {
	v := reflect.ValueOf(message)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct || !isPlain(v.Type().Elem()) || len(body) >= sparseBytes {
		return json.Unmarshal(body, message)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	for i := range v.Elem().NumField() {
		name, _, _ := strings.Cut(v.Elem().Type().Field(i).Tag.Get("json"), ",")
		if value, has := fields[name]; has {
			if err := json.Unmarshal(value, v.Elem().Field(i).Addr().Interface()); err != nil {
				return err
			}
		}
	}
	return nil
}

// isPlain reports whether marshal and unmarshal can treat t field by field: t does not encode
// itself, each field has a name for JSON, and omitempty is the only option, on a field that can
// be empty.
func isPlain(t reflect.Type) bool {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return false
	}
	for f := range t.Fields() {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		isOmitted := option == "omitempty" && f.Type.Kind() != reflect.Struct
		if !f.IsExported() || f.Anonymous || name == "" || name == "-" || option != "" && !isOmitted {
			return false
		}
	}
	return true
}

// isEmpty is what omitempty means.
func isEmpty(v reflect.Value) bool {
	if k := v.Kind(); k == reflect.Array || k == reflect.Map || k == reflect.Slice || k == reflect.String {
		return v.Len() == 0
	}
	return v.IsZero()
}
