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

// ignoresUnknown are the requests of the original API. Existing programs send them with fields that
// no server ever knew, so the gateway ignores unknown fields. It refuses any other request with an
// unknown field, which is most often a misspelled name.
var ignoresUnknown = map[protoreflect.Name]bool{
	"CreateCodebaseRequest": true, "GetCodebaseRequest": true, "ListCodebasesRequest": true, "DeleteCodebaseRequest": true,
	"ListFilesRequest": true, "DownloadFileRequest": true,
	"CreateSandboxRequest": true, "GetSandboxRequest": true, "ListSandboxesRequest": true,
	"StartSandboxRequest": true, "StopSandboxRequest": true, "DestroySandboxRequest": true,
	"ExecRequest":          true,
	"CreateSessionRequest": true, "GetSessionRequest": true, "ListSessionsRequest": true, "DestroySessionRequest": true, "SessionExecRequest": true,
}

// fieldOf returns the field with the name key in one of its two spellings, or nil.
func fieldOf(message protoreflect.MessageDescriptor, key string) protoreflect.FieldDescriptor {
	if field := message.Fields().ByJSONName(key); field != nil {
		return field
	}
	return message.Fields().ByTextName(key)
}

// unknownField returns the error for a key that is not a field; it lists the fields.
func unknownField(message protoreflect.MessageDescriptor, key string) error {
	names := []string{}
	for i := range message.Fields().Len() {
		names = append(names, message.Fields().Get(i).JSONName())
	}
	if len(names) == 0 {
		return fmt.Errorf("unknown field %q: this request has no fields", key)
	}
	slices.Sort(names)
	return fmt.Errorf("unknown field %q; want one of: %s", key, strings.Join(names, ", "))
}

// query reads the fields of a request from a query.
type query struct{ runtime.DefaultQueryParser }

// Parse sets the fields of m from values, except those of the route's path.
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

// checkKey refuses a key of a query that is not a field: FIELD, FIELD.FIELD or, for a map,
// FIELD[KEY].
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

// onlyQuery refuses a query with other keys, for a route whose query is not a message.
func onlyQuery(values url.Values, keys ...string) error {
	for key := range values {
		if !slices.Contains(keys, key) {
			return invalid("query: unknown field %q; want one of: %s", key, strings.Join(keys, ", "))
		}
	}
	return nil
}
