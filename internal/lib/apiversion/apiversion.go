// Package apiversion detects programs and servers of different versions, instead of letting them
// ignore each other's fields (docs/adr/0015-version-skew.md).
//
// The API only grows. A server refuses a request with an unknown field. A server of another project
// would ignore it; it is recognized because it does not send Header. The level allows a later
// version to remove something.
package apiversion

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// Level is the API level of this program. A release that adds to the API raises it.
	Level = 1
	// Least is the lowest level of programs that this server supports.
	Least = 1
	// Header is the metadata of a server's answer to a health call (grpc.health.v1), which needs no
	// token: "LEAST-LEVEL".
	Header = "agentfense-api"
	// Additions is the first number of the fields and values that agentfense added to messages and
	// enums of the original API.
	Additions = 100
	// MaxAnswerBytes limits a message of a server. Pages of lists and pieces of contents are
	// smaller; the server refuses any other answer beyond it.
	MaxAnswerBytes = 64 << 20
)

// Range are the API levels that a server supports.
type Range struct{ Least, Level int }

// Here returns the levels of this server.
func Here() Range { return Range{Least, Level} }

// String returns the value of Header.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.Least, r.Level) }

// Parse reads a value of Header.
func Parse(text string) (r Range, ok bool) {
	least, level, found := strings.Cut(text, "-")
	var err, err2 error
	r.Least, err = strconv.Atoi(least)
	r.Level, err2 = strconv.Atoi(level)
	return r, found && err == nil && err2 == nil && 0 < r.Least && r.Least <= r.Level
}

// Unknown returns the first field of m, or of a message in it, that this program does not know; ""
// if it knows all.
func Unknown(m proto.Message) string {
	return search(m.ProtoReflect(), func(m protoreflect.Message) string {
		if len(m.GetUnknown()) == 0 {
			return ""
		}
		number, _, _ := protowire.ConsumeTag(m.GetUnknown()) // was parsed already
		return fmt.Sprintf("%s has no field %d", m.Descriptor().Name(), number)
	})
}

// Addition returns the first field or value of m, or of a message in it, that the original API does
// not have; "" if there is none.
func Addition(m proto.Message) string {
	return search(m.ProtoReflect(), func(m protoreflect.Message) (found string) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if f.Number() >= Additions || f.Enum() != nil && !f.IsList() && v.Enum() >= Additions {
				found = string(f.Name())
			}
			return found == ""
		})
		return found
	})
}

// search returns the first result of find for m and the messages in it.
func search(m protoreflect.Message, find func(protoreflect.Message) string) string {
	found := find(m)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case found != "" || f.Message() == nil:
		case f.IsMap(): // of texts, in this interface
		case f.IsList():
			for i := 0; i < v.List().Len() && found == ""; i++ {
				found = search(v.List().Get(i).Message(), find)
			}
		default:
			found = search(v.Message(), find)
		}
		return found == ""
	})
	return found
}
