package apiversion_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/apiversion"
)

func TestALevelIsReadAsItIsWritten(t *testing.T) {
	for _, r := range []apiversion.Range{apiversion.Here(), {Least: 2, Level: 30}} {
		if got, ok := apiversion.Parse(r.String()); !ok || got != r {
			t.Errorf("%s is %v, %t", r, got, ok)
		}
	}
	for _, text := range []string{"", "1", "1-", "-1", "2-1", "0-1", "a-b", "1-2-3", "1.0-2"} {
		if r, ok := apiversion.Parse(text); ok {
			t.Errorf("%q is %v", text, r)
		}
	}
}

// newer is a message of a newer program, as an older one reads it.
func newer[M proto.Message](t *testing.T, m M, field string) M {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, field...)
	read, _ := m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(raw, read); err != nil {
		t.Fatal(err)
	}
	return read
}

func TestUnknown(t *testing.T) {
	const field = "\xc0\x3e\x01" // number 1000, a varint
	rule := newer(t, &sandboxv1.PermissionRule{Pattern: "**"}, field)
	for _, tt := range []struct {
		name    string
		message proto.Message
		want    string
	}{
		{name: "nothing", message: &sandboxv1.ExecRequest{Command: "true", Env: map[string]string{"A": "B"}, Detach: true}},
		{name: "a field", message: newer(t, &sandboxv1.ExecRequest{Command: "true"}, field), want: "ExecRequest has no field 1000"},
		{name: "a field of a message in a list", message: &sandboxv1.CreateSandboxRequest{Permissions: []*sandboxv1.PermissionRule{{}, rule}}, want: "PermissionRule has no field 1000"},
		{name: "a field of a message in it", message: &sandboxv1.CreateSandboxRequest{Resources: newer(t, &sandboxv1.ResourceLimits{}, field)}, want: "ResourceLimits has no field 1000"},
	} {
		if got := apiversion.Unknown(tt.message); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestAddition(t *testing.T) {
	for _, tt := range []struct {
		name    string
		message proto.Message
		want    string
	}{
		{name: "what was there before", message: &sandboxv1.ExecRequest{Command: "true", Env: map[string]string{"A": "B"}, Stdin: "x"}},
		{name: "a field", message: &sandboxv1.ExecRequest{StdinBytes: []byte{1}}, want: "stdin_bytes"},
		{name: "a field of a message in it", message: &sandboxv1.CreateSandboxRequest{Resources: &sandboxv1.ResourceLimits{DiskBytes: 1}}, want: "disk_bytes"},
		{name: "a value of a message in a list", message: &sandboxv1.CreateSandboxRequest{Permissions: []*sandboxv1.PermissionRule{{Type: sandboxv1.PatternType_PATTERN_TYPE_AUTO}}}, want: "type"},
	} {
		if got := apiversion.Addition(tt.message); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Maps are not searched for messages.
func TestNoMapHasMessages(t *testing.T) {
	for _, file := range []protoreflect.FileDescriptor{sandboxv1.File_sandbox_v1_common_proto, sandboxv1.File_sandbox_v1_codebase_proto, sandboxv1.File_sandbox_v1_sandbox_proto, sandboxv1.File_sandbox_v1_board_proto, sandboxv1.File_sandbox_v1_export_proto} {
		for i := range file.Messages().Len() {
			m := file.Messages().Get(i)
			for j := range m.Fields().Len() {
				if f := m.Fields().Get(j); f.IsMap() && f.MapValue().Message() != nil {
					t.Errorf("%s", f.FullName())
				}
			}
		}
	}
}
