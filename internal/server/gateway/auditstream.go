package gateway

import (
	"context"
	"net/http"
	"strconv"

	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// auditStream sends a sandbox's audit events, and then new ones. A browser that reconnects names
// the last event that it has, and gets the events after it.
func (g *gateway) auditStream(w http.ResponseWriter, r *http.Request, sandboxID string) {
	request, err := auditRequest(r, sandboxID)
	if err != nil {
		writeError(w, r, err)
		return
	}
	ctx, err := g.call(r, sandboxv1.SandboxService_Audit_FullMethodName)
	if err != nil {
		writeError(w, r, err)
		return
	}
	stream(ctx, g, w, r, source[sandboxv1.AuditEvent]{
		open: func(ctx context.Context) (grpc.ServerStreamingClient[sandboxv1.AuditEvent], error) {
			return g.sandboxes.Audit(ctx, request)
		},
		emit: sendAuditEvent,
		end:  (*events).start,
	})
}

func auditRequest(r *http.Request, sandboxID string) (*sandboxv1.AuditRequest, error) {
	request := &sandboxv1.AuditRequest{}
	if err := readQuery(r, request); err != nil {
		return nil, err
	}
	request.SandboxId, request.Follow = sandboxID, true
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		seq, err := strconv.ParseUint(last, 10, 64)
		if err != nil {
			return nil, invalid("Last-Event-ID %q: want the id of an event", last)
		}
		request.AfterSeq = max(request.AfterSeq, seq)
	}
	return request, nil
}

// readQuery sets the fields of a request from the query.
func readQuery(r *http.Request, request proto.Message) error {
	if err := (&query{}).Parse(request, r.URL.Query(), utilities.NewDoubleArray(nil)); err != nil {
		return invalid("%v", err)
	}
	return nil
}

func sendAuditEvent(out *events, event *sandboxv1.AuditEvent) error {
	data, err := newCodec().Marshal(event)
	if err != nil {
		return err
	}
	return out.sendNumbered("audit", event.GetSeq(), data)
}
