package service

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestAPanicIsAnInternalErrorOfItsCall(t *testing.T) {
	err := survive(func() error { panic("oh") })
	s := &Service{log: slog.New(slog.DiscardHandler)}
	told := status.Convert(s.toStatus(context.Background(), "/x", err))
	if told.Code() != codes.Internal || strings.Contains(told.Message(), "oh") || !strings.Contains(told.Message(), "incident") {
		t.Errorf("%v: %s", told.Code(), told.Message())
	}
	if !strings.Contains(err.Error(), "survive_test.go") {
		t.Errorf("where it was is not told: %v", err)
	}
	if err := survive(func() error { return io.EOF }); err != io.EOF { //nolint:errorlint // the very error
		t.Error(err)
	}
}
