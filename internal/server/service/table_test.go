package service

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestEveryCallNeedsAScope(t *testing.T) {
	known := 0
	for _, file := range []protoreflect.FileDescriptor{sandboxv1.File_sandbox_v1_codebase_proto, sandboxv1.File_sandbox_v1_sandbox_proto, sandboxv1.File_sandbox_v1_board_proto} {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				name := "/" + string(s.FullName()) + "/" + string(s.Methods().Get(j).Name())
				if scopeOf[name] == 0 {
					t.Errorf("%s needs no scope", name)
				}
				known++
			}
		}
	}
	if known != len(scopeOf) {
		t.Errorf("%d calls, and %d in the table", known, len(scopeOf))
	}
}

func TestEveryKindHasACode(t *testing.T) {
	for kind := errdefs.Internal; kind <= errdefs.Deadline; kind++ {
		code, known := codeOf[kind]
		if !known || code == codes.OK || code == codes.Unknown {
			t.Errorf("%s is %s", kind, code)
		}
	}
}

func TestAResultIsCutOnlyAsItMust(t *testing.T) {
	pieces := [][]byte{[]byte("plain text\n"), []byte("äöü€😀"), {0xff, 0xfe, 0x80}}
	output := func(t *rapid.T, name string) []byte {
		piece := pieces[rapid.IntRange(0, len(pieces)-1).Draw(t, name+" piece")]
		size := rapid.SampledFrom([]int{0, 1, 1000, maxResultBytes / 5, maxResultBytes / 2, maxResultBytes - 100, maxResultBytes}).Draw(t, name+" size")
		return bytes.Repeat(piece, size/len(piece)+1)[:size]
	}
	rapid.Check(t, func(t *rapid.T) {
		out, errs := output(t, "stdout"), output(t, "stderr")
		whole := wireSize(out)+wireSize(errs) < maxResultBytes-200
		r := resultOf(ended{exit: 1}, &head{data: bytes.Clone(out)}, &head{data: bytes.Clone(errs)})
		if size := proto.Size(r); size > maxResultBytes {
			t.Fatalf("%d bytes are more than %d", size, maxResultBytes)
		}
		if whole && (r.StdoutTruncated || r.StderrTruncated) {
			t.Fatal("cut although it fits")
		}
		for _, s := range []struct {
			given     []byte
			text      string
			raw       []byte
			truncated bool
		}{{out, r.Stdout, r.StdoutBytes, r.StdoutTruncated}, {errs, r.Stderr, r.StderrBytes, r.StderrTruncated}} {
			got := s.raw
			if got == nil {
				got = []byte(s.text)
			}
			if !bytes.HasPrefix(s.given, got) || s.truncated == (len(got) == len(s.given)) {
				t.Fatalf("%d of %d bytes, truncated %v", len(got), len(s.given), s.truncated)
			}
		}
	})
}
