package service

import (
	"errors"
	"slices"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// An ErrorInfo of any reason has startedKey with the value wasNot if it is certain that nothing of
// the command has run. No other value is used.
const (
	startedKey = "started"
	wasNot     = "false"
)

// unstarted is the error of a command that certainly never started.
type unstarted struct{ error }

// Unwrap returns the error without the mark.
func (u unstarted) Unwrap() error { return u.error }

// neverStarted marks an error: its command never started.
func neverStarted(err error) error {
	if err == nil {
		return nil
	}
	return unstarted{err}
}

// detailed is an error with a detail for programs.
type detailed struct {
	error
	detail protoadapt.MessageV1
}

// Unwrap returns the error without the detail.
func (d *detailed) Unwrap() error { return d.error }

// detailsOf returns the details of the status of an error.
func detailsOf(err error) []protoadapt.MessageV1 {
	var details []protoadapt.MessageV1
	if d, ok := errors.AsType[*detailed](err); ok {
		details = append(details, d.detail)
	}
	if l, ok := errors.AsType[*errdefs.Limit](err); ok {
		details = append(details, &errdetails.ErrorInfo{
			Reason: string(errdefs.LimitExceeded), Domain: errdefs.ReasonDomain, Metadata: map[string]string{"resource": l.Resource, "limit": strconv.FormatInt(l.Most, 10)},
		})
	}
	if r := errdefs.ReasonOf(err); r != "" && len(details) == 0 {
		details = append(details, &errdetails.ErrorInfo{Reason: string(r), Domain: errdefs.ReasonDomain})
	}
	if _, is := errors.AsType[unstarted](err); is {
		details = withNotStarted(details)
	}
	if h := helpOf(err); h != nil {
		details = append(details, h)
	}
	return details
}

// maxHelpBytes is the room for commands in a status.
const maxHelpBytes = 512

// helpOf returns the commands of agentfense that the message leaves out, nil if there are none. The
// command line shows them to its user.
func helpOf(err error) *errdetails.Help {
	h := &errdetails.Help{}
	for _, c := range errdefs.CommandsOf(err) {
		h.Links = append(h.Links, &errdetails.Help_Link{Description: "agentfense " + string(c)})
	}
	if len(h.Links) == 0 || proto.Size(h) > maxHelpBytes {
		return nil
	}
	return h
}

// withNotStarted adds to the details that the command never started. An error has one
// google.rpc.ErrorInfo.
func withNotStarted(details []protoadapt.MessageV1) []protoadapt.MessageV1 {
	for i, d := range details {
		if info, is := d.(*errdetails.ErrorInfo); is {
			info = proto.CloneOf(info)
			if info.Metadata == nil {
				info.Metadata = map[string]string{}
			}
			info.Metadata[startedKey] = wasNot
			details[i] = info
			return details
		}
	}
	return append(details, &errdetails.ErrorInfo{Reason: string(errdefs.CommandNotStarted), Domain: errdefs.ReasonDomain, Metadata: map[string]string{startedKey: wasNot}})
}

// withStatus adds the status of a sandbox that is not running.
func withStatus(status string, err error) error {
	return &detailed{err, &errdetails.ErrorInfo{Reason: string(errdefs.SandboxNotRunning), Domain: errdefs.ReasonDomain, Metadata: map[string]string{"status": status}}}
}

func notRunning(sb *record.Sandbox) error {
	status, _ := sb.Record().Served.Status(false)
	return withStatus(
		string(status),
		errdefs.New(errdefs.Precondition, "sandbox %s: sandbox is not running", sb.ID()),
	)
}

// Clients accept 8 KiB of metadata, which holds a status twice: as its message, and as its details
// in base64, which repeat the message. Message and paths share maxDetailBytes. A message longer
// than maxMessageWithDetails is sent without details.
const (
	maxDetailBytes        = 4 << 10
	maxMessageWithDetails = 2 << 10
)

// sentBytes is the length of a message in the metadata, where each byte that is not printable ASCII
// takes three.
func sentBytes(message string) int {
	n := len(message)
	for _, b := range []byte(message) {
		if b < ' ' || b > '~' || b == '%' {
			n += 2
		}
	}
	return n
}

// violationBytes is the room of a violation in a status.
func violationBytes(v *errdetails.PreconditionFailure_Violation) int {
	return len(v.Type) + len(v.Subject) + 8 // of the encoding
}

// withPaths adds the paths that prevented an apply, as many as fit: a
// google.rpc.PreconditionFailure whose violations have the type "conflict" or "refused" and the
// path as subject. The detail means that nothing was applied: an apply that failed midway does not
// get it.
func withPaths(result apply.Result, err error) error {
	applied := slices.ContainsFunc(result.Paths, func(p apply.PathResult) bool { return p.Outcome == apply.Applied })
	if !errdefs.Is(err, errdefs.Precondition) || applied {
		return err
	}
	failure := &errdetails.PreconditionFailure{}
	left := maxDetailBytes - sentBytes(err.Error())
	for _, p := range result.Paths {
		if p.Outcome != apply.Conflict && p.Outcome != apply.Refused {
			continue
		}
		v := &errdetails.PreconditionFailure_Violation{Type: string(p.Outcome), Subject: p.Path.Text()}
		if left -= violationBytes(v); left < 0 {
			break
		}
		failure.Violations = append(failure.Violations, v)
	}
	if len(failure.Violations) == 0 {
		return err
	}
	return &detailed{err, failure}
}
