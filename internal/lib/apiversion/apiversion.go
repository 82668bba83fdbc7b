// Package apiversion lets programs and servers of different versions find out
// about it, instead of ignoring what the other one says (docs/adr/0015-version-skew.md).
//
// The interface only grows. A server refuses a request with a field that it does
// not know; one that is not agentfense's would ignore it, and is told by the
// header that it does not send. A level is needed for the day on which something
// is taken away.
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
	// Level is the interface's as it is here. A release that adds to the
	// interface raises it.
	Level = 1
	// Least is the lowest level whose programs this server still answers as they
	// expect.
	Least = 1
	// Header is the metadata with which a server answers the question how it is
	// (grpc.health.v1), where no token is needed: "LEAST-LEVEL".
	Header = "agentfense-api"
	// Additions is the first number of the fields and values that agentfense has
	// added to messages and enums that were there before.
	Additions = 100
	// MaxAnswerBytes bounds a message of a server. Lists have pages, and contents
	// pieces, that every client takes; what has neither is refused beyond it.
	MaxAnswerBytes = 64 << 20
)

// Range are the levels that a server speaks.
type Range struct{ Least, Level int }

// Here are those of this server.
func Here() Range { return Range{Least, Level} }

// String is the header's value.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.Least, r.Level) }

// Parse reads a header's value.
func Parse(text string) (r Range, ok bool) {
	least, level, found := strings.Cut(text, "-")
	var err, err2 error
	r.Least, err = strconv.Atoi(least)
	r.Level, err2 = strconv.Atoi(level)
	return r, found && err == nil && err2 == nil && 0 < r.Least && r.Least <= r.Level
}

// Unknown names the first field of m, or of a message in it, that this program
// does not know; "" if it knows all.
func Unknown(m proto.Message) string {
	return search(m.ProtoReflect(), func(m protoreflect.Message) string {
		if len(m.GetUnknown()) == 0 {
			return ""
		}
		number, _, _ := protowire.ConsumeTag(m.GetUnknown()) // was parsed already
		return fmt.Sprintf("%s has no field %d", m.Descriptor().Name(), number)
	})
}

// Addition names the first field or value of m, or of a message in it, that a
// server which is not agentfense's would ignore; "" if there is none.
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

// search returns what find says first, of m and the messages in it.
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
