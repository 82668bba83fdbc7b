package stream

import (
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
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

// Command returns the command by which the user can do what the message of a server's error says,
// "" if there is none.
func Command(s *status.Status) errdefs.Command {
	for _, d := range s.Details() {
		help, is := d.(*errdetails.Help)
		if !is || len(help.GetLinks()) == 0 {
			continue
		}
		if command, is := strings.CutPrefix(help.GetLinks()[0].GetDescription(), "agentfense "); is {
			return errdefs.Command(vpath.Escape(command))
		}
	}
	return ""
}
