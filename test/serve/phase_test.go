package serve_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// killedAt has the server killed at a point that a call reaches, and starts the
// next.
func (s *server) killedAt(point string, call func() error) {
	s.t.Helper()
	s.end(syscall.SIGTERM)
	s.crashFile = filepath.Join(s.t.TempDir(), "point")
	s.serve()
	if err := os.WriteFile(s.crashFile, []byte(point), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.crashFile = ""
	answered := make(chan error, 1)
	go func() { answered <- call() }()
	ended := make(chan error, 1)
	cmd := s.cmd
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill() // so that Wait returns; the test has failed
		<-ended
		s.t.Fatalf("the server was not killed at %q", point)
	}
	if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || state.Signal() != syscall.SIGKILL {
		s.t.Fatalf("the server ended by itself: %s", cmd.ProcessState)
	}
	if err := <-answered; err == nil {
		s.t.Errorf("a call was answered by a server killed at %q", point)
	}
	s.conn.Close()
	s.serve()
}

// isWhole fails the test unless everything that the state directory has is
// known to the server, and nothing is half done.
func (s *server) isWhole() {
	s.t.Helper()
	if left := s.leftovers(); len(left) > 0 {
		s.t.Errorf("left: %q", left)
	}
	list, err := s.sandboxes.ListSandboxes(s.t.Context(), &sandboxv1.ListSandboxesRequest{PageSize: 1000})
	var listed []string
	for _, box := range must(s.t, list, err).Sandboxes {
		listed = append(listed, box.Id)
	}
	slices.Sort(listed)
	if known := strings.Fields(s.agentfense("ls", "--quiet")); !slices.Equal(listed, slices.Sorted(slices.Values(known))) {
		s.t.Errorf("the server lists %v, the command line %v", listed, known)
	}
	logs, err := filepath.Glob(filepath.Join(s.home, "audit", "*.jsonl"))
	for _, log := range must(s.t, logs, err) {
		id := strings.TrimSuffix(filepath.Base(log), ".jsonl")
		s.agentfense("audit", id, "--verify")
		events := s.events(id)
		if n := strings.Count(strings.Join(events, " "), "sandbox_created"); n != 1 || events[0] != "sandbox_created" {
			s.t.Errorf("%s begins %d times: %q", id, n, events)
		}
		if end := slices.Index(events, "sandbox_destroyed"); (end < 0) != slices.Contains(listed, id) || end >= 0 && end != len(events)-1 {
			s.t.Errorf("%s is listed %v, its log %q", id, slices.Contains(listed, id), events)
		}
	}
	s.codebasesAreWhole()
}

// events lists the kinds of the events of a sandbox's log.
func (s *server) events(id string) (kinds []string) {
	s.t.Helper()
	for line := range strings.Lines(s.agentfense("audit", id, "--json")) {
		var record struct {
			Event string `json:"event"`
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			s.t.Errorf("%q: %v", line, err)
		}
		kinds = append(kinds, record.Event)
	}
	return kinds
}

// codebasesAreWhole is isWhole for the codebases.
func (s *server) codebasesAreWhole() {
	s.t.Helper()
	list, err := s.codebases.ListCodebases(s.t.Context(), &sandboxv1.ListCodebasesRequest{PageSize: 1000})
	known := map[string]*sandboxv1.Codebase{}
	for _, c := range must(s.t, list, err).Codebases {
		known[c.Id] = c
	}
	dirs, err := os.ReadDir(filepath.Join(s.home, "codebases"))
	for _, dir := range must(s.t, dirs, err) {
		id := dir.Name()
		if id == "lock" {
			continue
		}
		if known[id] == nil {
			s.t.Errorf("codebase %s is not known", id)
			continue
		}
		var size int64
		var count int32
		files, err := s.codebases.ListFiles(s.t.Context(), &sandboxv1.ListFilesRequest{CodebaseId: id, Recursive: true})
		for _, f := range must(s.t, files, err).Files {
			if !f.IsDir {
				count, size = count+1, size+f.Size
			}
			if strings.Contains(f.Path, ".agentfense-") {
				s.t.Errorf("left in the codebase: %s", f.Path)
			}
		}
		if known[id].FileCount != count || known[id].Size != size {
			s.t.Errorf("codebase %s has %d files, %d bytes; it says %d, %d", id, count, size, known[id].FileCount, known[id].Size)
		}
		staged, err := os.ReadDir(filepath.Join(s.home, "codebases", id, "staging"))
		if len(must(s.t, staged, err)) > 0 {
			s.t.Errorf("left in staging: %v", staged)
		}
		if _, err := os.Stat(filepath.Join(s.home, "codebases", id, "doomed")); err == nil {
			s.t.Errorf("codebase %s is still to be deleted", id)
		}
		delete(known, id)
	}
	if len(known) > 0 {
		s.t.Errorf("codebases without a directory: %v", known)
	}
}

// have returns a file of a codebase, or "(none)".
func (s *server) have(codebase, path string) string {
	s.t.Helper()
	content, err := s.download(codebase, path)
	switch status.Code(err) {
	case codes.OK:
		return content
	case codes.NotFound:
		return "(none)"
	}
	s.t.Error(err)
	return ""
}

// names lists what is at the top of a codebase.
func (s *server) names(codebase string) string {
	s.t.Helper()
	list, err := s.codebases.ListFiles(s.t.Context(), &sandboxv1.ListFilesRequest{CodebaseId: codebase})
	var names []string
	for _, f := range must(s.t, list, err).Files {
		names = append(names, f.Path)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestAServerKilledInAnUpload(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	upload := func(path string) func() error {
		return func() error {
			_, err := s.tryUpload(&sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: path}, "new\n")
			return err
		}
	}
	for _, tt := range []struct{ point, path, want, names string }{
		{"upload: received", "f", "old\n", "f"},
		{"upload: received", "a/b/c", "(none)", "f"},
		{"upload: way made", "a/b/c", "(none)", "f"},
		{"upload: placed", "a/b/c", "new\n", "a f"},
		{"upload: placed", "f", "new\n", "a f"},
	} {
		s.killedAt(tt.point, upload(tt.path))
		if got, names := s.have(cb, tt.path), s.names(cb); got != tt.want || names != tt.names {
			t.Errorf("killed at %q: %s is %q among %q, want %q among %q", tt.point, tt.path, got, names, tt.want, tt.names)
		}
		s.isWhole()
	}
}

func TestAServerKilledInTheMiddleOfAStream(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	up, err := s.codebases.UploadTree(t.Context())
	for _, chunk := range []*sandboxv1.UploadChunk{
		{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: &sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: "first"}}},
		{Content: &sandboxv1.UploadChunk_Data{Data: []byte("whole\n")}},
		{Content: &sandboxv1.UploadChunk_Metadata_{Metadata: &sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: "f"}}},
		{Content: &sandboxv1.UploadChunk_Data{Data: []byte("half")}},
	} {
		if err == nil {
			err = up.Send(chunk)
		}
	}
	must(t, up, err)
	staging := filepath.Join(s.home, "codebases", cb, "staging")
	testenv.Eventually(t, "half of the second file has arrived", func() bool {
		staged, err := filepath.Glob(staging + "/*")
		if err != nil || len(staged) != 1 {
			return false
		}
		content, err := os.ReadFile(staged[0])
		return err == nil && string(content) == "half"
	})
	s.end(syscall.SIGKILL)
	s.serve()
	if got := s.have(cb, "f") + s.have(cb, "first"); got != "old\nwhole\n" {
		t.Errorf("the codebase has %q", got)
	}
	s.isWhole()
}

func TestAServerKilledWhileACodebaseIsMadeOrDeleted(t *testing.T) {
	s := start(t)
	kept := s.codebase(map[string]string{"f": "kept\n"})
	s.killedAt("create codebase: made", func() error {
		_, err := s.codebases.CreateCodebase(t.Context(), &sandboxv1.CreateCodebaseRequest{Name: "n", OwnerId: "me"})
		return err
	})
	s.isWhole()
	remove := func() error {
		_, err := s.codebases.DeleteCodebase(t.Context(), &sandboxv1.DeleteCodebaseRequest{CodebaseId: kept})
		return err
	}
	s.killedAt("delete codebase: doomed", remove)
	s.isWhole()
	if got := s.have(kept, "f"); got != "kept\n" {
		t.Errorf("a deletion that had only begun left %q", got)
	}
	s.killedAt("delete codebase: forgotten", remove)
	s.isWhole()
	_, err := s.codebases.GetCodebase(t.Context(), &sandboxv1.GetCodebaseRequest{CodebaseId: kept})
	wantCode(t, err, codes.NotFound)
}

func TestAServerKilledWhileItCreatesASandbox(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	for point, want := range map[string]int{"create sandbox: recorded": 0, "create sandbox: logged": 0, "create sandbox: made": 1} {
		s.killedAt(point, func() error {
			_, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: everything, Labels: map[string]string{"at": point}})
			return err
		})
		s.isWhole()
		list, err := s.sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{Labels: map[string]string{"at": point}})
		boxes := must(t, list, err).Sandboxes
		if len(boxes) != want {
			t.Errorf("killed at %q: %d sandboxes, want %d", point, len(boxes), want)
		}
		for _, box := range boxes {
			started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: box.Id})
			must(t, started, err)
			if got := s.exec(box.Id, "cat f"); got != "old\n" {
				t.Errorf("killed at %q: the sandbox shows %q", point, got)
			}
		}
	}
}

func TestAServerKilledWhileItStartsASandbox(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	for _, point := range []string{"start: ready", "start: kept"} {
		made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: everything})
		id := must(t, made, err).Id
		s.killedAt(point, func() error {
			_, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
			return err
		})
		s.isWhole()
		// One that nobody was told to keep ends with the server, as soon as it sees that.
		testenv.Eventually(t, "it runs, or can be started", func() bool {
			_, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
			return err == nil || status.Code(err) == codes.FailedPrecondition && point == "start: kept"
		})
		if got := s.exec(id, "cat f"); got != "old\n" || s.status(id) != sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING {
			t.Errorf("killed at %q: the sandbox is %s and shows %q", point, s.status(id), got)
		}
	}
}

// syncPoints are where a server is killed that carries changes over.
var syncPoints = []string{
	"exec: ended", "sync: intended", "sync: staged", "sync: one placed", "sync: swapped", "sync: moved away",
	"sync: settled", "sync: told", "sync: dropped", "sync: applied",
}

func TestAServerKilledInASync(t *testing.T) {
	s := start(t)
	for _, point := range syncPoints {
		cb := s.codebase(map[string]string{"changed": "old\n", "gone": "x\n", "kept": "kept\n"})
		writer, other := s.sandbox(cb), s.sandbox(cb)
		s.exec(other, "cat changed gone")
		s.killedAt(point, func() error {
			_, err := s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{
				SandboxId: writer, Command: "echo new > changed; rm gone; mkdir -p made/deep; echo 1 > made/deep/a; echo 2 > made/b",
			})
			return err
		})
		s.isWhole()
		show := "cat changed kept made/deep/a made/b; ls -A"
		want := "new\nkept\n1\n2\nchanged\nkept\nmade\n"
		for what, id := range map[string]string{"writer": writer, "other": other} {
			if got := s.exec(id, show); got != want {
				t.Errorf("killed at %q: the %s shows %q, want %q", point, what, got, want)
			}
		}
		if got := s.have(cb, "changed") + s.have(cb, "gone") + s.have(cb, "made/deep/a") + s.have(cb, "made/b"); got != "new\n(none)1\n2\n" {
			t.Errorf("killed at %q: the codebase has %q", point, got)
		}
		if events := s.events(writer); !slices.Contains(events, "applied") {
			t.Errorf("killed at %q: the log has not what was carried over: %q", point, events)
		}
		s.upload(cb, "changed", "uploaded\n")
		if got := s.exec(writer, "cat changed; true"); got != "uploaded\n" || s.have(cb, "changed") != got {
			t.Errorf("killed at %q: after an upload the writer shows %q, the codebase has %q", point, got, s.have(cb, "changed"))
		}
		for _, id := range []string{writer, other} {
			empty, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
			must(t, empty, err)
		}
	}
}

func TestAServerKilledWhileItDestroysASandbox(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	for point, listed := range map[string]bool{"destroy: ended": true, "destroy: gone": false, "destroy: logged": false, "destroy: removed": false} {
		id := s.sandbox(cb)
		destroy := func(ctx context.Context) error {
			_, err := s.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: id})
			return err
		}
		s.killedAt(point, func() error { return destroy(t.Context()) })
		s.isWhole()
		got, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: id})
		if here := err == nil; here != listed {
			t.Errorf("killed at %q: GetSandbox = %v, %v", point, got, err)
		}
		if err := destroy(t.Context()); (err == nil) != listed {
			t.Errorf("killed at %q: destroyed again: %v", point, err)
		}
		s.isWhole()
	}
}

func TestAServerKilledWhileItForksASandbox(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	id := s.sandbox(cb)
	for point, want := range map[string]int{"fork: frozen": 0, "fork: made": 1, "fork sandbox: made": 2} {
		names := []string{"a" + point[len(point)-4:], "b" + point[len(point)-4:]}
		s.killedAt(point, func() error {
			_, err := sandboxv1.NewSnapshotServiceClient(s.conn).ForkSandbox(t.Context(), &sandboxv1.ForkSandboxRequest{SandboxId: id, Names: names})
			return err
		})
		list, err := s.sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{})
		forks := slices.DeleteFunc(must(t, list, err).Sandboxes, func(box *sandboxv1.Sandbox) bool { return box.Id == id })
		if known := len(strings.Fields(s.agentfense("ls", "--quiet"))) - 1; len(forks) != want || known != want {
			t.Errorf("killed at %q: the server lists %d forks, the command line %d, want %d", point, len(forks), known, want)
		}
		for _, fork := range forks {
			started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: fork.Id})
			must(t, started, err)
			if got := s.exec(fork.Id, "cat f"); got != "old\n" {
				t.Errorf("killed at %q: the fork shows %q", point, got)
			}
			empty, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: fork.Id})
			must(t, empty, err)
		}
		s.isWhole()
	}
}

// What a command wrote by rules with keep is kept at the end of the next one.
func TestAServerKilledBeforeItKeeps(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, dir, err)
	config := filepath.Join(dir, "server.yaml")
	for path, text := range map[string]string{
		filepath.Join(dir, "f"): "old\n",
		config:                  "mounts:\n  roots:\n    - {path: " + dir + ", writable: true, keep: true}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{t: t, home: t.TempDir(), flags: []string{"--config", config}}
	s.begin()
	made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{
		CodebaseId: s.codebase(nil), Permissions: everything,
		Mounts: []*sandboxv1.Mount{{Source: dir, Place: "/mnt/kept", Rules: []*sandboxv1.PermissionRule{{Pattern: "/**", Permission: sandboxv1.Permission_PERMISSION_WRITE, Keep: true}}}},
	})
	id := must(t, made, err).Id
	started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
	must(t, started, err)
	s.killedAt("keep: permitted", func() error {
		_, err := s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: "echo kept > /mnt/kept/f"})
		return err
	})
	s.isWhole()
	have := func() string {
		text, err := os.ReadFile(filepath.Join(dir, "f"))
		return string(must(t, text, err))
	}
	if got := have(); got != "old\n" {
		t.Errorf("before the next command f has %q", got)
	}
	if got := s.exec(id, "cat /mnt/kept/f"); got != "kept\n" || have() != got {
		t.Errorf("the sandbox shows %q, the host has %q", got, have())
	}
}
