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

// codeOf is the status code of each kind of error. A hidden object must look absent. What this host
// does not support is a precondition of the call that is not met.
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

// toStatus converts an error to one of gRPC. Clients never see a path of the host: an internal
// error goes to the log, and the client gets the incident id to find it there; scrub removes the
// paths of the others.
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
		return status.Errorf(codes.Internal, "internal error, incident %s: see the server's log", id)
	}
	told := status.New(codeOf[kind], s.scrub(errdefs.Plain(err)))
	if sentBytes(told.Message()) > maxMessageWithDetails {
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

// unimplemented is the error of a call or a field that this server does not know.
func unimplemented(method, what string) error {
	return status.Errorf(codes.Unimplemented, "%s: %s", method, what)
}
