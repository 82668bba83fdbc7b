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

// codec is the JSON of REST: it writes zero values, and ignores unknown fields of the requests of
// ignoresUnknown.
type codec struct {
	runtime.JSONPb
}

func newCodec() *codec {
	return &codec{runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{EmitUnpopulated: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
	}}
}

// Marshal returns v without the spaces that protojson adds at random, by build.
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

// NewDecoder returns a decoder that reads all of r as one value. Its error is io.EOF if r is empty.
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
		// protojson that ignores unknown fields also ignores unknown names of enums: a misspelled
		// type of a rule would change its meaning.
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return err
		}
		message := m.ProtoReflect().Descriptor()
		return checker{strict: !ignoresUnknown[message.Name()]}.message(message, value)
	})
}

// notTaken returns why a body is not a valid message m, with its first invalid field, if there is
// one.
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

// plainText is the text of an error of the protobuf library, without the library's name and its
// varying spaces.
func plainText(err error) string {
	return strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
}

// checker checks the names in the JSON of a message and of the messages in it: the names of enum
// values and, if strict, of fields.
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

// single returns the values of a field: for a list or a map, its elements.
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
