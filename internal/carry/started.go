package carry

import (
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// NotStarted reports whether a server says of the error of a command that nothing
// of it has run: see internal/service/detail.go.
func NotStarted(s *status.Status) bool {
	return slices.ContainsFunc(s.Details(), func(d any) bool {
		info, is := d.(*errdetails.ErrorInfo)
		return is && info.Domain == "agentfense" && info.Metadata["started"] == "false"
	})
}
