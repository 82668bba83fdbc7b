// Package wire speaks to a server as any program would, over gRPC and over
// REST, by what the API's descriptors say and nothing else. Messages are JSON
// here, the same for both.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// Calls returns every call of the API, as the files have them.
func Calls() []protoreflect.MethodDescriptor {
	var all []protoreflect.MethodDescriptor
	for _, file := range []protoreflect.FileDescriptor{sandboxv1.File_sandbox_v1_codebase_proto, sandboxv1.File_sandbox_v1_sandbox_proto, sandboxv1.File_sandbox_v1_board_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				all = append(all, methods.Get(j))
			}
		}
	}
	return all
}

// Call returns the call of a name, which no two services share.
func Call(name string) (protoreflect.MethodDescriptor, error) {
	for _, m := range Calls() {
		if string(m.Name()) == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("the API has no call %s", name)
}

// GRPC is a connection to a server.
type GRPC struct {
	Conn  *grpc.ClientConn
	Token string // "" shows none
}

// Dial connects without TLS. Messages may have any size here: the server bounds
// them.
func Dial(addr, token string) (GRPC, error) {
	const most = 1 << 30
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most), grpc.MaxCallSendMsgSize(most)))
	return GRPC{conn, token}, err
}

// Do makes a call: it sends the requests, and passes on each answer. Its error
// is the call's status.
func (g GRPC) Do(ctx context.Context, call protoreflect.MethodDescriptor, requests []string, receive func(answer string) error) error {
	if g.Token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+g.Token)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := "/" + string(call.Parent().FullName()) + "/" + string(call.Name())
	stream, err := g.Conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, name)
	if err != nil {
		return err
	}
	for _, text := range requests {
		request := dynamicpb.NewMessage(call.Input())
		if err := protojson.Unmarshal([]byte(text), request); err != nil {
			return err
		}
		if err := stream.SendMsg(request); errors.Is(err, io.EOF) {
			break // the server has ended the call: the answer says why
		} else if err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		answer := dynamicpb.NewMessage(call.Output())
		if err := stream.RecvMsg(answer); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		text, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(answer)
		if err != nil {
			return err
		}
		if err := receive(Compact(text)); err != nil {
			return err
		}
	}
}

// One makes a call and returns its answers, one a line.
func (g GRPC) One(ctx context.Context, call protoreflect.MethodDescriptor, requests ...string) (string, error) {
	var all bytes.Buffer
	err := g.Do(ctx, call, requests, func(answer string) error {
		all.WriteString(answer + "\n")
		return nil
	})
	return all.String(), err
}

// Compact returns JSON without the white space that protojson varies.
func Compact(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}
