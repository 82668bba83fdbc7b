package service_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// What a newer program asks for is refused by each call, not ignored.
func TestAFieldThatOnlyANewerServerKnowsIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	for _, file := range []protoreflect.FileDescriptor{sandboxv1.File_sandbox_v1_codebase_proto, sandboxv1.File_sandbox_v1_sandbox_proto, sandboxv1.File_sandbox_v1_board_proto, sandboxv1.File_sandbox_v1_export_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				w.askOfTheFuture(t, methods.Get(j))
			}
		}
	}
}

func (w *world) askOfTheFuture(t *testing.T, call protoreflect.MethodDescriptor) {
	t.Helper()
	request := dynamicpb.NewMessage(call.Input())
	request.SetUnknown([]byte("\xc0\x3e\x01")) // number 1000, a varint
	stream, err := w.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/"+string(call.Parent().FullName())+"/"+string(call.Name()))
	if err == nil {
		err = stream.SendMsg(request)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil {
		t.Fatal(err)
	}
	err = stream.RecvMsg(dynamicpb.NewMessage(call.Output()))
	if want := string(call.Input().Name()) + " has no field 1000"; status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want UNIMPLEMENTED with %q", call.Name(), err, want)
	}
}
