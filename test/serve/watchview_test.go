package serve_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// watching is a WatchView call.
type watching struct {
	t    *testing.T
	call sandboxv1.SandboxService_WatchViewClient
	told []string // "KIND PATH"
	stop context.CancelFunc
}

// watch begins a watch; it is there when this returns.
func (s *server) watch(r *sandboxv1.WatchViewRequest) *watching {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	call, err := s.sandboxes.WatchView(ctx, r)
	w := &watching{t: s.t, call: must(s.t, call, err), stop: cancel}
	if _, err := w.call.Header(); err != nil {
		s.t.Fatal(err)
	}
	return w
}

// await reads until it has been told of all of these; it fails if anything of
// never is told.
func (w *watching) await(never string, want ...string) {
	w.t.Helper()
	for slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(w.told, s) }) {
		m, err := w.call.Recv()
		if err != nil {
			w.t.Fatalf("waiting for %q, told %q: %v", want, w.told, err)
		}
		for _, c := range m.Changes {
			kind := strings.ToLower(strings.TrimPrefix(c.Kind.String(), "CHANGE_KIND_"))
			w.told = append(w.told, kind+" "+c.Path)
		}
	}
	for _, got := range w.told {
		if never != "" && strings.Contains(got, never) {
			w.t.Errorf("told of %q", got)
		}
	}
	w.told = nil
}

func TestWatchTellsWhatCommandsChange(t *testing.T) {
	s := start(t, "AGENTFENSE_SANDBOX_SYNC=manual")
	id := s.guarded()
	all := s.watch(&sandboxv1.WatchViewRequest{SandboxId: id, Recursive: true})
	root := s.watch(&sandboxv1.WatchViewRequest{SandboxId: id})
	below := s.watch(&sandboxv1.WatchViewRequest{SandboxId: id, Path: "d", Recursive: true})
	s.exec(id, "echo x > new; echo x >> a; rm b; mkdir d/e; echo x > d/e/f; touch end")
	all.await("hidden", "created new", "modified a", "deleted b", "created d/e", "created d/e/f", "created end")
	root.await("d/", "created new", "modified a", "deleted b", "created end")
	below.await("new", "created d/e", "created d/e/f")
	s.exec(id, "mv c moved; mv d away")
	all.await("", "deleted c", "created moved", "deleted d", "created away")
	below.await("", "deleted d")

	// A process that writes on and on is told of each time.
	stream, err := s.sandboxes.ExecStream(t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: "exec >log; while [ ! -e enough ]; do echo x; sleep 0.01; done"})
	must(t, stream, err)
	all.await("", "created log")
	for range 3 {
		all.await("", "modified log")
	}
	s.exec(id, "touch enough")
	s.lastOutput(stream, nil)

	if _, err := s.sandboxes.StopSandbox(t.Context(), &sandboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = all.call.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("the watch of a sandbox that was stopped ended with %v", err)
	}
	gone, err := s.sandboxes.WatchView(t.Context(), &sandboxv1.WatchViewRequest{SandboxId: id})
	_, err = must(t, gone, err).Recv()
	wantCode(t, err, codes.FailedPrecondition, "sandbox is not running")
}

func TestWatchTellsWhatOthersChange(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "1", "g": "2", "d/x": "3"})
	mine, other := s.sandbox(cb), s.sandbox(cb)
	w := s.watch(&sandboxv1.WatchViewRequest{SandboxId: mine, Recursive: true})
	s.upload(cb, "f", "changed")
	w.await("", "modified f")
	s.exec(other, "echo x > g; rm -r d")
	w.await("", "modified g", "deleted d/x")
}

func TestWatchTellsOfALinkedDirectory(t *testing.T) {
	s := start(t)
	dir := t.TempDir()
	write := func(path, content string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"f", "g", "mine", "no-a.pyc", "no.key", "d/x"} {
		write(path, "1")
	}
	linked, err := s.codebases.LinkCodebase(t.Context(), &sandboxv1.LinkCodebaseRequest{Name: "l", OwnerId: "me", Path: dir, IgnoreFiles: true})
	id := s.sandbox(must(t, linked, err).Id,
		&sandboxv1.PermissionRule{Pattern: "**", Permission: sandboxv1.Permission_PERMISSION_WRITE},
		&sandboxv1.PermissionRule{Pattern: "*.key", Permission: sandboxv1.Permission_PERMISSION_NONE})
	s.exec(id, "ls -R >/dev/null; echo x > mine")
	w := s.watch(&sandboxv1.WatchViewRequest{SandboxId: id, Recursive: true})
	write("mine", "the source's") // the sandbox has its own
	write("no.key", "2")
	write("no-b.pyc", "2")
	for _, path := range []string{"no-a.pyc", "g"} {
		if err := os.Remove(filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	write("d/x", "changed")
	write("f", "changed")
	write("new", "2")
	w.await("no", "modified f", "deleted g", "created new", "modified d/x")
	s.exec(id, "rm f; touch z")
	w.await("no", "deleted f", "created z")
	if _, err := s.sandboxes.Discard(t.Context(), &sandboxv1.DiscardRequest{SandboxId: id, Paths: []string{"f", "mine", "z"}}); err != nil {
		t.Fatal(err)
	}
	w.await("", "created f", "modified mine", "deleted z")
}

func TestWatchIsBounded(t *testing.T) {
	s := start(t)
	id := s.guarded()
	var all []*watching
	for range 64 {
		all = append(all, s.watch(&sandboxv1.WatchViewRequest{SandboxId: id}))
	}
	call, err := s.sandboxes.WatchView(t.Context(), &sandboxv1.WatchViewRequest{SandboxId: id})
	_, err = must(t, call, err).Recv()
	wantCode(t, err, codes.ResourceExhausted, "64")
	all[0].stop()
	testenv.Eventually(t, "there is room again", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		call, err := s.sandboxes.WatchView(ctx, &sandboxv1.WatchViewRequest{SandboxId: id})
		if err != nil {
			return false
		}
		header, err := call.Header()
		return err == nil && header != nil
	})
	// Nobody takes what these are told: the sandbox does not wait for them.
	s.exec(id, "mkdir many; touch $(seq -f many/%.0f 3000); rm -r many")
}
