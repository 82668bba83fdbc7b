package service

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

func TestPathsAreToldWhereNothingWasApplied(t *testing.T) {
	conflict := sandbox.PathResult{Path: "/f", Outcome: sandbox.Conflict}
	applied := sandbox.PathResult{Path: "/a", Outcome: sandbox.Applied}
	present := sandbox.PathResult{Path: "/p", Outcome: sandbox.Present}
	for _, tt := range []struct {
		name  string
		paths []sandbox.PathResult
		kind  fault.Kind
		want  int
	}{
		{"nothing applied", []sandbox.PathResult{conflict, present}, fault.Precondition, 1},
		{"some applied", []sandbox.PathResult{applied, conflict}, fault.Precondition, 0},
		{"the disk is full", []sandbox.PathResult{conflict}, fault.Exhausted, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := withPaths(sandbox.ApplyResult{Paths: tt.paths}, fault.New(tt.kind, "apply x: y"))
			if got := detailsOf(err); len(got) != tt.want || !fault.Is(err, tt.kind) {
				t.Errorf("%v has the details %v, want %d", err, got, tt.want)
			}
		})
	}
}

func TestAStatusFitsIntoMetadata(t *testing.T) {
	home, err := sandbox.OpenHomeAt(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{home: home}
	var result sandbox.ApplyResult
	for i := range 1000 {
		result.Paths = append(result.Paths, sandbox.PathResult{Path: vpath.Path(fmt.Sprintf("/%d", i)), Outcome: sandbox.Conflict})
	}
	for _, tt := range []struct {
		name, message string
		details       bool
	}{
		{"short", "x", true},
		{"long", strings.Repeat("x", mostBeside), true},
		{"too long", strings.Repeat("x", mostBeside+1), false},
		{"long in another script", strings.Repeat("\u00e9", mostBeside/6), true},
		{"too long in another script", strings.Repeat("\u00e9", mostBeside/6+1), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			told := status.Convert(s.toStatus(t.Context(), "Apply", withPaths(result, fault.New(fault.Precondition, "%s", tt.message))))
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
