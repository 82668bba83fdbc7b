package gateway

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ignoresUnknown are the requests of the original API. Programs exist that send
// them fields which no server ever knew, so such fields are ignored. Every other
// request is refused with one: most often its name is misspelt.
var ignoresUnknown = map[protoreflect.Name]bool{
	"CreateCodebaseRequest": true, "GetCodebaseRequest": true, "ListCodebasesRequest": true, "DeleteCodebaseRequest": true,
	"ListFilesRequest": true, "DownloadFileRequest": true,
	"CreateSandboxRequest": true, "GetSandboxRequest": true, "ListSandboxesRequest": true,
	"StartSandboxRequest": true, "StopSandboxRequest": true, "DestroySandboxRequest": true,
	"ExecRequest":          true,
	"CreateSessionRequest": true, "GetSessionRequest": true, "ListSessionsRequest": true, "DestroySessionRequest": true, "SessionExecRequest": true,
}

// fieldOf returns the field of a message that key names in one of its two
// spellings, or nil.
func fieldOf(message protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if field := message.Fields().ByJSONName(key); field != nil {
		return field
	}
	return message.Fields().ByTextName(key)
}

// unknownField says that message has no field called key, and which it has.
func unknownField(message protoreflect.MessageDescriptor, key string) error {
	names := []string{}
	for i := range message.Fields().Len() {
		names = append(names, message.Fields().Get(i).JSONName())
	}
	if len(names) == 0 {
		return fmt.Errorf("unknown field %q: there are none", key)
	}
	slices.Sort(names)
	return fmt.Errorf("unknown field %q; want one of: %s", key, strings.Join(names, ", "))
}

// query reads the fields of a request from a query.
type query struct{ runtime.DefaultQueryParser }

// Parse sets those fields of m that values name and the route's path does not.
func (q *query) Parse(m proto.Message, values url.Values, inPath *utilities.DoubleArray) error {
	message := m.ProtoReflect().Descriptor()
	if !ignoresUnknown[message.Name()] {
		for key := range values {
			if err := checkKey(message, key); err != nil {
				return fmt.Errorf("query: %w", err)
			}
		}
	}
	return q.DefaultQueryParser.Parse(m, values, inPath)
}

// checkKey refuses a key of a query that leads to no field: FIELD, FIELD.FIELD
// or, of a map, FIELD[KEY].
func checkKey(message protoreflect.MessageDescriptor, key string) error {
	name, _, _ := strings.Cut(key, "[")
	for part := range strings.SplitSeq(name, ".") {
		if message == nil {
			return fmt.Errorf("unknown field %q", key)
		}
		field := fieldOf(message, part)
		if field == nil {
			return unknownField(message, part)
		}
		message = field.Message()
	}
	return nil
}

// onlyQuery refuses a query with another key than those, for a route whose query
// is no message.
func onlyQuery(values url.Values, keys ...string) error {
	for key := range values {
		if !slices.Contains(keys, key) {
			return invalid("query: unknown field %q; want one of: %s", key, strings.Join(keys, ", "))
		}
	}
	return nil
}
