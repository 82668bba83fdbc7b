package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	_ "google.golang.org/genproto/googleapis/rpc/errdetails" // registers the details of errors for JSON
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The gateway uses these codes for requests that it refuses before a call; the service maps all
// other errors (internal/server/service/status.go). grpc-gateway maps codes to HTTP statuses,
// except for two with more precise HTTP statuses.

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

func notFound() error {
	return status.Error(codes.NotFound, "not found")
}

func unauthenticated(reason string) error {
	return status.Error(codes.Unauthenticated, reason)
}

// isUnknownCaller reports whether err means missing or unknown credentials.
func isUnknownCaller(err error) bool { return status.Code(err) == codes.Unauthenticated }

func denied(reason string) error {
	return status.Error(codes.PermissionDenied, reason)
}

func notReady() error {
	return status.Error(codes.Unavailable, "not ready")
}

func internal(format string, args ...any) error {
	return status.Errorf(codes.Internal, format, args...)
}

func wrongMethod() error {
	return &runtime.HTTPStatusError{
		HTTPStatus: http.StatusMethodNotAllowed,
		Err:        status.Error(codes.Unimplemented, "the path has no such method"),
	}
}

func tooLarge(most int64) error {
	return &runtime.HTTPStatusError{
		HTTPStatus: http.StatusRequestEntityTooLarge,
		Err:        status.Errorf(codes.ResourceExhausted, "the request's body is larger than %d bytes", most),
	}
}

func muxError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	writeError(w, r, err)
}

func routingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, httpStatus int) {
	switch httpStatus {
	case http.StatusMethodNotAllowed:
		writeError(w, r, wrongMethod())
	case http.StatusBadRequest:
		writeError(w, r, invalid("the path does not begin with /"))
	default:
		writeError(w, r, notFound())
	}
}

// writeError answers r with err. Nothing may have been written before.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	if b, ok := r.Body.(*body); ok && b.tooLarge {
		err = tooLarge(b.most)
	}
	var httpStatus int
	if e, ok := errors.AsType[*runtime.HTTPStatusError](err); ok {
		httpStatus, err = e.HTTPStatus, e.Err
	}
	st := status.Convert(err)
	if httpStatus == 0 {
		httpStatus = runtime.HTTPStatusFromCode(st.Code())
	}
	if httpStatus == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(httpStatus)
	_, _ = w.Write(statusJSON(st))
}

// statusJSON returns st as JSON, without details if one of them has an unknown type.
func statusJSON(st *status.Status) []byte {
	p := st.Proto()
	text, err := newCodec().Marshal(p)
	if err != nil {
		p.Details = nil
		text, err = newCodec().Marshal(p)
	}
	if err != nil { // the message is not UTF-8
		return []byte(`{"code":13,"message":"the error cannot be written as JSON","details":[]}`)
	}
	return text
}
