package gateway

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// watchView sends the changes in a sandbox's view.
func (g *gateway) watchView(w http.ResponseWriter, r *http.Request, sandboxID string) {
	request := &sandboxv1.WatchViewRequest{}
	if err := readQuery(r, request); err != nil {
		writeError(w, r, err)
		return
	}
	request.SandboxId = sandboxID
	ctx, err := g.call(r, sandboxv1.SandboxService_WatchView_FullMethodName)
	if err != nil {
		writeError(w, r, err)
		return
	}
	stream(ctx, g, w, r, source[sandboxv1.WatchViewResponse]{
		open: func(ctx context.Context) (grpc.ServerStreamingClient[sandboxv1.WatchViewResponse], error) {
			return g.sandboxes.WatchView(ctx, request)
		},
		emit: sendViewChanges,
		end:  (*events).start,
	})
}

func sendViewChanges(out *events, changes *sandboxv1.WatchViewResponse) error {
	data, err := newCodec().Marshal(changes)
	if err != nil {
		return err
	}
	return out.send("change", data)
}

// watchMessages sends the messages of a sandbox's board.
func (g *gateway) watchMessages(w http.ResponseWriter, r *http.Request, sandboxID string) {
	request := &sandboxv1.WatchMessagesRequest{}
	if err := readQuery(r, request); err != nil {
		writeError(w, r, err)
		return
	}
	request.SandboxId = sandboxID
	ctx, err := g.call(r, sandboxv1.BoardService_WatchMessages_FullMethodName)
	if err != nil {
		writeError(w, r, err)
		return
	}
	stream(ctx, g, w, r, source[sandboxv1.ReadMessagesResponse]{
		open: func(ctx context.Context) (grpc.ServerStreamingClient[sandboxv1.ReadMessagesResponse], error) {
			return g.boards.WatchMessages(ctx, request)
		},
		emit: sendMessages,
		end:  (*events).start,
	})
}

func sendMessages(out *events, page *sandboxv1.ReadMessagesResponse) error {
	data, err := newCodec().Marshal(page)
	if err != nil {
		return err
	}
	return out.send("messages", data)
}
