package gateway

import (
	"context"
	"net/http"
	"strconv"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// The headers of an export, which have the numbers of sandboxv1.ExportSummary.
const (
	headerEntries   = "Agentfense-Entries"
	headerDeletions = "Agentfense-Deletions"
	headerLeftOut   = "Agentfense-Left-Out"
)

// export sends the changes of a sandbox as a file.
func (g *gateway) export(w http.ResponseWriter, r *http.Request, sandboxID string) {
	ctx, err := g.call(r, sandboxv1.ExportService_ExportChanges_FullMethodName)
	if err != nil {
		writeError(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &sandboxv1.ExportChangesRequest{}
	if err := readQuery(r, request); err != nil {
		writeError(w, r, err)
		return
	}
	request.SandboxId = sandboxID // overrides the query
	stream, err := g.exports.ExportChanges(ctx, request)
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeFile(w, r, func() (*sandboxv1.ExportChangesResponse, error) {
		m, err := stream.Recv()
		if s := m.GetSummary(); s != nil {
			w.Header().Set(headerEntries, strconv.FormatInt(s.Entries, 10))
			w.Header().Set(headerDeletions, strconv.FormatInt(s.Deletions, 10))
			w.Header().Set(headerLeftOut, strconv.FormatInt(s.LeftOut, 10))
			w.Header().Set("Content-Length", strconv.FormatInt(s.SizeBytes, 10))
		}
		return m, err
	})
}
