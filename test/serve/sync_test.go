package serve_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

func TestChangesReachTheCodebaseAndItsSandboxes(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n", "gone": "x", "d/g": "kept\n"})
	one, two := s.sandbox(cb), s.sandbox(cb)
	if got := s.exec(two, "cat f; test ! -e new; test ! -e made/deep; cat gone"); got != "old\nx" {
		t.Errorf("before: %q", got)
	}
	s.exec(one, "echo from one > f; echo new > new; rm gone; mkdir -p made/deep; echo deep > made/deep/file")
	if got, err := s.download(cb, "f"); got != "from one\n" || err != nil {
		t.Errorf("the codebase has %q, %v", got, err)
	}
	if _, err := s.download(cb, "gone"); err == nil {
		t.Error("the codebase still has what was removed")
	}
	if got := s.exec(two, "cat f new made/deep/file; test ! -e gone; ls"); got != "from one\nnew\ndeep\nd\nf\nmade\nnew\n" {
		t.Errorf("the other sandbox shows %q", got)
	}
	entry, err := s.codebases.GetCodebase(t.Context(), &sandboxv1.GetCodebaseRequest{CodebaseId: cb})
	if must(t, entry, err).FileCount != 4 || entry.Size != int64(len("from one\nnew\ndeep\nkept\n")) {
		t.Errorf("the codebase has %d files, %d bytes", entry.FileCount, entry.Size)
	}

	// An upload onto what the sandbox itself wrote is seen, and stays.
	s.upload(cb, "f", "uploaded\n")
	s.upload(cb, "a/b/c", "far\n")
	for _, id := range []string{one, two} {
		if got := s.exec(id, "cat f a/b/c"); got != "uploaded\nfar\n" {
			t.Errorf("after the upload: %q", got)
		}
	}
	s.exec(one, "echo more >> d/g")
	if got, err := s.download(cb, "f"); got != "uploaded\n" || err != nil {
		t.Errorf("an exec brought back %q, %v", got, err)
	}
}

func TestAConflictIsWonByTheLastWriterAndReported(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n", "g": "old\n"})
	id := s.sandbox(cb)
	stream, err := s.sandboxes.ExecStream(t.Context(), &sandboxv1.ExecRequest{
		SandboxId: id, Command: "echo inside > f; echo ready; while [ ! -e go ]; do sleep 0.01; done",
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	must(t, m, err)
	s.upload(cb, "f", "outside\n")
	s.upload(cb, "go", "")
	for {
		m, err = stream.Recv()
		if must(t, m, err).ExitCode != nil {
			break
		}
	}
	if len(m.Conflicts) != 1 || m.Conflicts[0] != "f" || m.ConflictCount != 1 {
		t.Errorf("conflicts %v", m)
	}
	if got, err := s.download(cb, "f"); got != "inside\n" || err != nil {
		t.Errorf("the codebase has %q, %v", got, err)
	}
}

func TestSyncByHandLeavesTheCodebaseAlone(t *testing.T) {
	s := start(t, "AGENTFENSE_SANDBOX_SYNC=manual")
	cb := s.codebase(map[string]string{"f": "old\n"})
	id := s.sandbox(cb)
	s.exec(id, "echo new > f; echo x > other")
	if got, err := s.download(cb, "f"); got != "old\n" || err != nil {
		t.Errorf("the codebase has %q, %v", got, err)
	}
	if got := s.exec(id, "cat f"); got != "new\n" {
		t.Errorf("the sandbox has %q", got)
	}
	_, err := s.download(cb, "other")
	wantCode(t, err, codes.NotFound)
}

func TestSyncOnStop(t *testing.T) {
	s := start(t, "AGENTFENSE_SANDBOX_SYNC=on_stop")
	cb := s.codebase(map[string]string{"f": "old\n"})
	id := s.sandbox(cb)
	s.exec(id, "echo new > f")
	if got, err := s.download(cb, "f"); got != "old\n" || err != nil {
		t.Errorf("before the stop the codebase has %q, %v", got, err)
	}
	if _, err := s.sandboxes.StopSandbox(t.Context(), &sandboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.download(cb, "f"); got != "new\n" || err != nil {
		t.Errorf("after the stop the codebase has %q, %v", got, err)
	}
}
