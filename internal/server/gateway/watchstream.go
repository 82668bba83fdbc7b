package gateway

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// watchView sends the changes in a sandbox's view.
func (g *gateway) watchView(w http.ResponseWriter, r *http.Request, sandboxID string) {
	request := &sandboxv1.WatchViewRequest{}
	watch(g, w, r, sandboxv1.SandboxService_WatchView_FullMethodName, request, "change", func(ctx context.Context) (grpc.ServerStreamingClient[sandboxv1.WatchViewResponse], error) {
		request.SandboxId = sandboxID
		return g.sandboxes.WatchView(ctx, request)
	})
}

// watchMessages sends the messages of a sandbox's board.
func (g *gateway) watchMessages(w http.ResponseWriter, r *http.Request, sandboxID string) {
	request := &sandboxv1.WatchMessagesRequest{}
	watch(g, w, r, sandboxv1.BoardService_WatchMessages_FullMethodName, request, "messages", func(ctx context.Context) (grpc.ServerStreamingClient[sandboxv1.ReadMessagesResponse], error) {
		request.SandboxId = sandboxID
		return g.boards.WatchMessages(ctx, request)
	})
}

// watch sends each answer of a call as an event, after it has read the query into the request.
func watch[A any](g *gateway, w http.ResponseWriter, r *http.Request, method string, request proto.Message, event string, open func(context.Context) (grpc.ServerStreamingClient[A], error)) {
	if err := readQuery(r, request); err != nil {
		writeError(w, r, err)
		return
	}
	ctx, err := g.call(r, method)
	if err != nil {
		writeError(w, r, err)
		return
	}
	stream(ctx, g, w, r, source[A]{
		open: open,
		emit: func(out *events, answer *A) error {
			data, err := newCodec().Marshal(answer)
			if err != nil {
				return err
			}
			return out.send(event, data)
		},
		end: (*events).start,
	})
}
