package stream

import (
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// NotStarted reports whether a server's error means that nothing of the command has run: see
// internal/server/service/detail.go.
func NotStarted(s *status.Status) bool {
	return slices.ContainsFunc(s.Details(), func(d any) bool {
		info, is := d.(*errdetails.ErrorInfo)
		return is && info.Domain == errdefs.ReasonDomain && info.Metadata["started"] == "false"
	})
}

// Reason returns the reason of a server's error, "" if it has none.
func Reason(s *status.Status) errdefs.Reason {
	for _, d := range s.Details() {
		if info, is := d.(*errdetails.ErrorInfo); is && info.Domain == errdefs.ReasonDomain {
			return errdefs.Reason(info.Reason)
		}
	}
	return ""
}
