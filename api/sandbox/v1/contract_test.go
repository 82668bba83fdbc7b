package sandboxv1_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// What programs written for the API that was there before agentfense rely on,
// copied from its description by hand and not from our files: names, numbers,
// types, files, routes. T is google.protobuf.Timestamp, D is
// google.protobuf.Duration. Nothing here ever changes.

// ours is the least number of a field or enum value that agentfense added.
const ours = 100

var contractFiles = map[string]protoreflect.FileDescriptor{
	"common.proto":   sandboxv1.File_sandbox_v1_common_proto,
	"codebase.proto": sandboxv1.File_sandbox_v1_codebase_proto,
	"sandbox.proto":  sandboxv1.File_sandbox_v1_sandbox_proto,
}

var contractEnums = map[string]string{ // "file name" -> values
	"common.proto Permission":             "PERMISSION_UNSPECIFIED 0, PERMISSION_NONE 1, PERMISSION_VIEW 2, PERMISSION_READ 3, PERMISSION_WRITE 4",
	"common.proto PatternType":            "PATTERN_TYPE_UNSPECIFIED 0, PATTERN_TYPE_GLOB 1, PATTERN_TYPE_DIRECTORY 2, PATTERN_TYPE_FILE 3",
	"common.proto SandboxStatus":          "SANDBOX_STATUS_UNSPECIFIED 0, SANDBOX_STATUS_PENDING 1, SANDBOX_STATUS_RUNNING 2, SANDBOX_STATUS_STOPPED 3, SANDBOX_STATUS_ERROR 4",
	"common.proto SessionStatus":          "SESSION_STATUS_UNSPECIFIED 0, SESSION_STATUS_ACTIVE 1, SESSION_STATUS_CLOSED 2",
	"sandbox.proto RuntimeType":           "RUNTIME_TYPE_UNSPECIFIED 0, RUNTIME_TYPE_BWRAP 1, RUNTIME_TYPE_DOCKER 2",
	"sandbox.proto ExecOutput.OutputType": "OUTPUT_TYPE_UNSPECIFIED 0, OUTPUT_TYPE_STDOUT 1, OUTPUT_TYPE_STDERR 2",
}

var contractMessages = map[string]string{ // "file name" -> fields
	"common.proto Empty":                   "",
	"common.proto PermissionRule":          "pattern 1 string; type 2 PatternType; permission 3 Permission; priority 4 int32",
	"codebase.proto Codebase":              "id 1 string; name 2 string; owner_id 3 string; size 4 int64; file_count 5 int32; created_at 6 T; updated_at 7 T",
	"codebase.proto CreateCodebaseRequest": "name 1 string; owner_id 2 string",
	"codebase.proto GetCodebaseRequest":    "codebase_id 1 string",
	"codebase.proto ListCodebasesRequest":  "owner_id 1 string; page_size 2 int32; page_token 3 string",
	"codebase.proto ListCodebasesResponse": "codebases 1 repeated Codebase; next_page_token 2 string",
	"codebase.proto DeleteCodebaseRequest": "codebase_id 1 string",
	"codebase.proto UploadChunk":           "metadata 1 oneof content UploadChunk.Metadata; data 2 oneof content bytes",
	"codebase.proto UploadChunk.Metadata":  "codebase_id 1 string; file_path 2 string; total_size 3 int64",
	"codebase.proto UploadResult":          "codebase_id 1 string; file_path 2 string; size 3 int64; checksum 4 string",
	"codebase.proto DownloadFileRequest":   "codebase_id 1 string; file_path 2 string",
	"codebase.proto FileChunk":             "data 1 bytes",
	"codebase.proto ListFilesRequest":      "codebase_id 1 string; path 2 string; recursive 3 bool",
	"codebase.proto ListFilesResponse":     "files 1 repeated FileInfo",
	"codebase.proto FileInfo":              "path 1 string; name 2 string; is_dir 3 bool; size 4 int64; modified_at 5 T",
	"sandbox.proto ResourceLimits":         "memory_bytes 1 int64; cpu_quota 2 int64; cpu_shares 3 int64; pids_limit 4 int64",
	"sandbox.proto Sandbox": "id 1 string; codebase_id 2 string; permissions 3 repeated PermissionRule; status 4 SandboxStatus; " +
		"labels 5 map<string,string>; created_at 6 T; started_at 7 T; stopped_at 8 T; expires_at 9 T; " +
		"runtime 10 RuntimeType; image 11 string; resources 12 ResourceLimits",
	"sandbox.proto CreateSandboxRequest": "codebase_id 1 string; permissions 2 repeated PermissionRule; expires_in 3 D; " +
		"labels 4 map<string,string>; runtime 5 RuntimeType; image 6 string; resources 7 ResourceLimits",
	"sandbox.proto GetSandboxRequest":     "sandbox_id 1 string",
	"sandbox.proto StartSandboxRequest":   "sandbox_id 1 string",
	"sandbox.proto StopSandboxRequest":    "sandbox_id 1 string",
	"sandbox.proto DestroySandboxRequest": "sandbox_id 1 string",
	"sandbox.proto ListSandboxesRequest":  "codebase_id 1 string; page_size 2 int32; page_token 3 string",
	"sandbox.proto ListSandboxesResponse": "sandboxes 1 repeated Sandbox; next_page_token 2 string",
	"sandbox.proto ExecRequest":           "sandbox_id 1 string; command 2 string; stdin 3 string; env 4 map<string,string>; workdir 5 string; timeout 6 D",
	"sandbox.proto ExecResult":            "stdout 1 string; stderr 2 string; exit_code 3 int32; duration 4 D",
	"sandbox.proto ExecOutput":            "type 1 ExecOutput.OutputType; data 2 bytes",
	"sandbox.proto Session":               "id 1 string; sandbox_id 2 string; status 3 SessionStatus; shell 4 string; created_at 5 T; closed_at 6 T",
	"sandbox.proto CreateSessionRequest":  "sandbox_id 1 string; shell 2 string; env 3 map<string,string>",
	"sandbox.proto GetSessionRequest":     "session_id 1 string",
	"sandbox.proto DestroySessionRequest": "session_id 1 string",
	"sandbox.proto ListSessionsRequest":   "sandbox_id 1 string",
	"sandbox.proto ListSessionsResponse":  "sessions 1 repeated Session",
	"sandbox.proto SessionExecRequest":    "session_id 1 string; command 2 string; timeout 3 D",
}

var contractCalls = map[string]string{ // full name -> messages, and the route if there is one
	"/sandbox.v1.SandboxService/CreateSandbox":     "CreateSandboxRequest -> Sandbox; POST /v1/sandboxes body *",
	"/sandbox.v1.SandboxService/GetSandbox":        "GetSandboxRequest -> Sandbox; GET /v1/sandboxes/{sandbox_id}",
	"/sandbox.v1.SandboxService/ListSandboxes":     "ListSandboxesRequest -> ListSandboxesResponse; GET /v1/sandboxes",
	"/sandbox.v1.SandboxService/StartSandbox":      "StartSandboxRequest -> Sandbox; POST /v1/sandboxes/{sandbox_id}/start",
	"/sandbox.v1.SandboxService/StopSandbox":       "StopSandboxRequest -> Sandbox; POST /v1/sandboxes/{sandbox_id}/stop",
	"/sandbox.v1.SandboxService/DestroySandbox":    "DestroySandboxRequest -> Empty; DELETE /v1/sandboxes/{sandbox_id}",
	"/sandbox.v1.SandboxService/Exec":              "ExecRequest -> ExecResult; POST /v1/sandboxes/{sandbox_id}/exec body *",
	"/sandbox.v1.SandboxService/ExecStream":        "ExecRequest -> stream ExecOutput",
	"/sandbox.v1.SandboxService/CreateSession":     "CreateSessionRequest -> Session; POST /v1/sandboxes/{sandbox_id}/sessions body *",
	"/sandbox.v1.SandboxService/GetSession":        "GetSessionRequest -> Session; GET /v1/sessions/{session_id}",
	"/sandbox.v1.SandboxService/ListSessions":      "ListSessionsRequest -> ListSessionsResponse; GET /v1/sandboxes/{sandbox_id}/sessions",
	"/sandbox.v1.SandboxService/DestroySession":    "DestroySessionRequest -> Empty; DELETE /v1/sessions/{session_id}",
	"/sandbox.v1.SandboxService/SessionExec":       "SessionExecRequest -> ExecResult; POST /v1/sessions/{session_id}/exec body *",
	"/sandbox.v1.SandboxService/SessionExecStream": "SessionExecRequest -> stream ExecOutput",
	"/sandbox.v1.CodebaseService/CreateCodebase":   "CreateCodebaseRequest -> Codebase; POST /v1/codebases body *",
	"/sandbox.v1.CodebaseService/GetCodebase":      "GetCodebaseRequest -> Codebase; GET /v1/codebases/{codebase_id}",
	"/sandbox.v1.CodebaseService/ListCodebases":    "ListCodebasesRequest -> ListCodebasesResponse; GET /v1/codebases",
	"/sandbox.v1.CodebaseService/DeleteCodebase":   "DeleteCodebaseRequest -> Empty; DELETE /v1/codebases/{codebase_id}",
	"/sandbox.v1.CodebaseService/UploadFiles":      "stream UploadChunk -> UploadResult",
	"/sandbox.v1.CodebaseService/DownloadFile":     "DownloadFileRequest -> stream FileChunk",
	"/sandbox.v1.CodebaseService/ListFiles":        "ListFilesRequest -> ListFilesResponse; GET /v1/codebases/{codebase_id}/files",
}

func TestMessagesAndEnumsAreThoseOfTheContract(t *testing.T) {
	messages, enums := map[string]string{}, map[string]string{}
	for name, file := range contractFiles {
		if file.Syntax() != protoreflect.Proto3 || file.Package() != "sandbox.v1" || file.Path() != "sandbox/v1/"+name {
			t.Errorf("%s: got %s of package %s in %s", name, file.Syntax(), file.Package(), file.Path())
		}
		collect(name, file, messages, enums)
	}
	for _, side := range []struct{ want, got map[string]string }{
		{want: contractMessages, got: messages},
		{want: contractEnums, got: enums},
	} {
		for name, want := range side.want {
			if got, there := side.got[name]; !there {
				t.Errorf("%s is missing", name)
			} else if got != want {
				t.Errorf("%s differs (-contract +ours):\n%s", name, cmp.Diff(want, got))
			}
		}
	}
}

// types holds messages and enums: a file, or a message.
type types interface {
	Messages() protoreflect.MessageDescriptors
	Enums() protoreflect.EnumDescriptors
}

func collect(file string, in types, messages, enums map[string]string) {
	for i := range in.Enums().Len() {
		e := in.Enums().Get(i)
		var values []string
		for j := range e.Values().Len() {
			if v := e.Values().Get(j); v.Number() < ours {
				values = append(values, fmt.Sprint(v.Name(), " ", v.Number()))
			}
		}
		enums[file+" "+short(e)] = strings.Join(values, ", ")
	}
	for i := range in.Messages().Len() {
		m := in.Messages().Get(i)
		if m.IsMapEntry() {
			continue
		}
		var fields []string
		for j := range m.Fields().Len() {
			if f := m.Fields().Get(j); f.Number() < ours {
				fields = append(fields, fmt.Sprint(f.Name(), " ", f.Number(), " ", typeOf(f)))
			}
		}
		messages[file+" "+short(m)] = strings.Join(fields, "; ")
		collect(file, m, messages, enums)
	}
}

// short is a name without the package, but with the message around it.
func short(d protoreflect.Descriptor) string {
	switch name := string(d.FullName()); name {
	case "google.protobuf.Timestamp":
		return "T"
	case "google.protobuf.Duration":
		return "D"
	default:
		return strings.TrimPrefix(name, "sandbox.v1.")
	}
}

func typeOf(f protoreflect.FieldDescriptor) string {
	var kind string
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s,%s>", typeOf(f.MapKey()), typeOf(f.MapValue()))
	case f.Message() != nil:
		kind = short(f.Message())
	case f.Enum() != nil:
		kind = short(f.Enum())
	default:
		kind = f.Kind().String()
	}
	switch {
	case f.IsList():
		return "repeated " + kind
	case f.HasOptionalKeyword():
		return "optional " + kind
	case f.ContainingOneof() != nil:
		return fmt.Sprintf("oneof %s %s", f.ContainingOneof().Name(), kind)
	default:
		return kind
	}
}

// The JSON of a field is its name in lowerCamelCase: no file gives another.
func TestFieldsHaveTheirDefaultNamesInJSON(t *testing.T) {
	var check func(in types)
	check = func(in types) {
		for i := range in.Messages().Len() {
			m := in.Messages().Get(i)
			for j := range m.Fields().Len() {
				f := m.Fields().Get(j)
				if want := lowerCamel(string(f.Name())); f.JSONName() != want {
					t.Errorf("%s is %q in JSON, want %q", f.FullName(), f.JSONName(), want)
				}
			}
			check(m)
		}
	}
	for _, file := range contractFiles {
		check(file)
	}
}

func lowerCamel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

func TestCallsAndRoutesAreThoseOfTheContract(t *testing.T) {
	got := map[string]string{}
	routes := map[string]string{} // route -> call
	for _, file := range contractFiles {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				name := fmt.Sprintf("/%s/%s", s.FullName(), m.Name())
				got[name] = callOf(m)
				_, route, _ := strings.Cut(got[name], "; ")
				route, _, _ = strings.Cut(route, " body")
				if other := routes[route]; route != "" && other != "" {
					t.Errorf("%s and %s are both at %s", name, other, route)
				}
				routes[route] = name
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(contractCalls)) {
		if want := contractCalls[name]; got[name] != want {
			t.Errorf("%s differs (-contract +ours):\n%s", name, cmp.Diff(want, got[name]))
		}
	}
}

func callOf(m protoreflect.MethodDescriptor) string {
	stream := func(is bool, d protoreflect.MessageDescriptor) string {
		if is {
			return "stream " + short(d)
		}
		return short(d)
	}
	call := stream(m.IsStreamingClient(), m.Input()) + " -> " + stream(m.IsStreamingServer(), m.Output())
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if rule == nil {
		return call
	}
	call += "; "
	switch p := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		call += "GET " + p.Get
	case *annotations.HttpRule_Put:
		call += "PUT " + p.Put
	case *annotations.HttpRule_Post:
		call += "POST " + p.Post
	case *annotations.HttpRule_Delete:
		call += "DELETE " + p.Delete
	default:
		call += fmt.Sprintf("%T", p)
	}
	if rule.GetBody() != "" {
		call += " body " + rule.GetBody()
	}
	if rule.GetResponseBody() != "" {
		call += " response_body " + rule.GetResponseBody()
	}
	for range rule.GetAdditionalBindings() {
		call += " and more"
	}
	return call
}
