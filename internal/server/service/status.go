package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// codeOf says what a client is told. A hidden object must look absent. What
// this host cannot do is a precondition of the call that is not met.
var codeOf = map[errdefs.Kind]codes.Code{
	errdefs.Internal:        codes.Internal,
	errdefs.Invalid:         codes.InvalidArgument,
	errdefs.Unauthenticated: codes.Unauthenticated,
	errdefs.NotFound:        codes.NotFound,
	errdefs.Hidden:          codes.NotFound,
	errdefs.Exists:          codes.AlreadyExists,
	errdefs.Denied:          codes.PermissionDenied,
	errdefs.Precondition:    codes.FailedPrecondition,
	errdefs.Exhausted:       codes.ResourceExhausted,
	errdefs.Unsupported:     codes.FailedPrecondition,
	errdefs.Unavailable:     codes.Unavailable,
	errdefs.Canceled:        codes.Canceled,
	errdefs.Deadline:        codes.DeadlineExceeded,
}

// toStatus makes an error one of gRPC. No path of the host leaves: an internal
// error goes to the log, and the client gets the number under which it stands
// there; in the others the state directory has no name.
func (s *Service) toStatus(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	if _, is := status.FromError(err); is {
		return err
	}
	kind := errdefs.KindOf(err)
	switch {
	case kind == errdefs.Internal && errors.Is(err, context.Canceled):
		kind = errdefs.Canceled
	case kind == errdefs.Internal && errors.Is(err, context.DeadlineExceeded):
		kind = errdefs.Deadline
	case kind == errdefs.Internal:
		id := incident()
		s.log.ErrorContext(ctx, "internal error", "incident", id, "method", method, "err", err)
		return status.Errorf(codes.Internal, "internal error, incident %s: the server's log says more", id)
	}
	told := status.New(codeOf[kind], s.scrub(err.Error()))
	if sentBytes(told.Message()) > mostBeside {
		return told.Err()
	}
	if more, wrong := told.WithDetails(detailsOf(err)...); wrong == nil {
		told = more
	}
	return told.Err()
}

func incident() string {
	var b [4]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// unimplemented is the answer to what only a newer server knows, or an older one
// knew.
func unimplemented(method, what string) error {
	return status.Errorf(codes.Unimplemented, "%s: %s", method, what)
}
