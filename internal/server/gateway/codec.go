package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// codec is the JSON of the interface: zero values are written, and unknown
// fields are ignored where ignoresUnknown says so.
type codec struct {
	runtime.JSONPb
}

func newCodec() *codec {
	return &codec{runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{EmitUnpopulated: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
	}}
}

// Marshal returns v without the spaces that protojson puts in or leaves out from
// one build of a program to the next.
func (c *codec) Marshal(v any) ([]byte, error) {
	text, err := c.JSONPb.Marshal(v)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, err
	}
	return compact.Bytes(), nil
}

// NewDecoder returns a decoder that takes the whole of r as one value. Its error
// is io.EOF if there is none.
func (c *codec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		m, ok := v.(proto.Message)
		if !ok {
			return errors.New("the body is no message")
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			return io.EOF
		}
		if err := c.UnmarshalOptions.Unmarshal(text, m); err != nil {
			return c.notTaken(m, text, err)
		}
		// Ignoring unknown fields, protojson ignores unknown names of enums too: a
		// misspelt type of a rule would make it another rule.
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return err
		}
		message := m.ProtoReflect().Descriptor()
		return checker{strict: !ignoresUnknown[message.Name()]}.message(message, value)
	})
}

// notTaken says why a body is no message m: by the first of its fields that
// cannot be read, where it has such a field.
func (c *codec) notTaken(m proto.Message, text []byte, err error) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return fmt.Errorf("body: %s", plainText(err))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		alone, jsonErr := json.Marshal(map[string]json.RawMessage{name: fields[name]})
		if jsonErr != nil {
			continue
		}
		if err := c.UnmarshalOptions.Unmarshal(alone, m.ProtoReflect().New().Interface()); err != nil {
			return fmt.Errorf("body: %s: %s", name, plainText(err))
		}
	}
	return fmt.Errorf("body: %s", plainText(err))
}

// plainText is the text of an error of the protobuf library, which begins with
// the library's name and varies its spaces so that nobody relies on it.
func plainText(err error) string {
	return strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
}

// checker checks the names in the JSON of a message, wherever they are in it:
// those of enums' values and, if it is strict, those of fields.
type checker struct{ strict bool }

func (c checker) message(message protoreflect.MessageDescriptor, value any) error {
	fields, ok := value.(map[string]any)
	if !ok {
		return nil // a duration, a time or null
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		field := fieldOf(message, key)
		if field == nil {
			if c.strict {
				return fmt.Errorf("body: %w", unknownField(message, key))
			}
			continue
		}
		for _, v := range single(field, fields[key]) {
			if err := c.field(field, key, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c checker) field(field protoreflect.FieldDescriptor, key string, value any) error {
	if field.IsMap() {
		field = field.MapValue()
	}
	if inner := field.Message(); inner != nil {
		return c.message(inner, value)
	}
	name, isName := value.(string)
	if field.Enum() != nil && isName && field.Enum().Values().ByName(protoreflect.Name(name)) == nil {
		return fmt.Errorf("body: %s: unknown value %q", key, name)
	}
	return nil
}

// single are the values of a field: the elements of a list or of a map.
func single(field protoreflect.FieldDescriptor, value any) []any {
	switch v := value.(type) {
	case []any:
		return v
	case map[string]any:
		if !field.IsMap() {
			break
		}
		var all []any
		for _, element := range v {
			all = append(all, element)
		}
		return all
	}
	return []any{value}
}

// decode reads the body of a request that the generated code does not serve.
func decode(body io.Reader, m proto.Message) error {
	if err := newCodec().NewDecoder(body).Decode(m); err != nil && !errors.Is(err, io.EOF) {
		return invalid("%v", err)
	}
	return nil
}
