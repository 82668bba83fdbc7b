package service

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

func TestPathsAreToldWhereNothingWasApplied(t *testing.T) {
	conflict := apply.PathResult{Path: "/f", Outcome: apply.Conflict}
	applied := apply.PathResult{Path: "/a", Outcome: apply.Applied}
	present := apply.PathResult{Path: "/p", Outcome: apply.Present}
	for _, tt := range []struct {
		name  string
		paths []apply.PathResult
		kind  errdefs.Kind
		want  int
	}{
		{"nothing applied", []apply.PathResult{conflict, present}, errdefs.Precondition, 1},
		{"some applied", []apply.PathResult{applied, conflict}, errdefs.Precondition, 0},
		{"the disk is full", []apply.PathResult{conflict}, errdefs.Exhausted, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := withPaths(apply.Result{Paths: tt.paths}, errdefs.New(tt.kind, "apply x: y"))
			if got := detailsOf(err); len(got) != tt.want || !errdefs.Is(err, tt.kind) {
				t.Errorf("%v has the details %v, want %d", err, got, tt.want)
			}
		})
	}
}

func TestAStatusFitsIntoMetadata(t *testing.T) {
	home, err := record.OpenHomeAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{home: home}
	var result apply.Result
	for i := range 1000 {
		result.Paths = append(result.Paths, apply.PathResult{Path: vpath.Path(fmt.Sprintf("/%d", i)), Outcome: apply.Conflict})
	}
	for _, tt := range []struct {
		name, message string
		details       bool
	}{
		{"short", "x", true},
		{"long", strings.Repeat("x", maxMessageWithDetails), true},
		{"too long", strings.Repeat("x", maxMessageWithDetails+1), false},
		{"long in another script", strings.Repeat("\u00e9", maxMessageWithDetails/6), true},
		{"too long in another script", strings.Repeat("\u00e9", maxMessageWithDetails/6+1), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			told := status.Convert(s.toStatus(t.Context(), "Apply", withPaths(result, errdefs.New(errdefs.Precondition, "%s", tt.message))))
			if has := len(told.Details()) > 0; has != tt.details || told.Message() != tt.message {
				t.Errorf("%q has details: %v, want %v", told.Message(), has, tt.details)
			}
			encoded, err := proto.Marshal(told.Proto())
			if err != nil {
				t.Fatal(err)
			}
			if n := sentBytes(tt.message) + base64.RawStdEncoding.EncodedLen(len(encoded)); tt.details && n > 8000 {
				t.Errorf("its metadata is %d bytes", n)
			}
		})
	}
}
