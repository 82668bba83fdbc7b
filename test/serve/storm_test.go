package serve_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// storm is many clients that work on a few sandboxes of one linked directory.
type storm struct {
	*server
	dir       string
	snapshots sandboxv1.SnapshotServiceClient
	history   sandboxv1.HistoryServiceClient
	board     sandboxv1.BoardServiceClient
	export    sandboxv1.ExportServiceClient
	killed    bool // the server may be gone
	mu        sync.Mutex
	made      map[string][]string // by sandbox, the directories that a command has made
	codes     map[string]int
}

func (s *storm) connect() {
	s.snapshots, s.history = sandboxv1.NewSnapshotServiceClient(s.conn), sandboxv1.NewHistoryServiceClient(s.conn)
	s.board, s.export = sandboxv1.NewBoardServiceClient(s.conn), sandboxv1.NewExportServiceClient(s.conn)
}

// told notes how a call ended. An answer that a server may give because of another client's call is
// no fault.
func (s *storm) told(call string, ctx context.Context, err error) {
	code := status.Code(err)
	s.mu.Lock()
	s.codes[call+" "+code.String()]++
	s.mu.Unlock()
	switch code {
	case codes.OK, codes.FailedPrecondition, codes.NotFound, codes.AlreadyExists, codes.ResourceExhausted, codes.Aborted, codes.Canceled:
		if strings.Contains(status.Convert(err).Message(), "it has no supervisor") {
			s.t.Errorf("%s: %v", call, err)
		}
	case codes.Unavailable, codes.DeadlineExceeded:
		if !s.killed && ctx.Err() == nil && !strings.Contains(err.Error(), "in use by process") {
			s.t.Errorf("%s: %v", call, err)
		}
	default:
		s.t.Errorf("%s: %v", call, err)
	}
}

// blow lets all clients work until ctx ends.
func (s *storm) blow(ctx context.Context, kept []string, shaken string) {
	var all sync.WaitGroup
	every := func(call string, do func(ctx context.Context) error) {
		all.Go(func() {
			for ctx.Err() == nil {
				one, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				begun := time.Now()
				err := do(one)
				if d := time.Since(begun); d > 40*time.Second {
					s.t.Errorf("%s took %v", call, d)
				}
				s.told(call, one, err)
				cancel()
				time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			}
		})
	}
	briefly := func(ctx context.Context, do func(ctx context.Context)) error {
		brief, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(60))*time.Millisecond)
		defer cancel()
		do(brief)
		return nil
	}
	for _, id := range append([]string{shaken}, kept...) {
		every("exec", func(ctx context.Context) error {
			d := fmt.Sprintf("d-%s-%d", id, time.Now().UnixNano())
			r, err := s.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: id, Command: fmt.Sprintf("mkdir .t%[1]s && echo %[1]s > .t%[1]s/a && echo %[1]s > .t%[1]s/b && mv .t%[1]s %[1]s && echo %[1]s > shared", d)})
			if err == nil && r.ExitCode == 0 {
				s.mu.Lock()
				s.made[id] = append(s.made[id], d)
				s.mu.Unlock()
			}
			return err
		})
		for range 2 {
			every("apply", func(ctx context.Context) error {
				_, err := s.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: id, OnConflict: sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_OURS})
				return err
			})
		}
		every("lock", func(ctx context.Context) error {
			if rand.IntN(2) == 0 {
				return briefly(ctx, func(ctx context.Context) {
					_, _ = s.board.LockPaths(ctx, &sandboxv1.LockPathsRequest{SandboxId: id, Paths: []string{"shared"}})
				})
			}
			_, err := s.board.LockPaths(ctx, &sandboxv1.LockPathsRequest{SandboxId: id, Paths: []string{"locked"}})
			return err
		})
		every("unlock", func(ctx context.Context) error {
			_, err := s.board.UnlockPaths(ctx, &sandboxv1.UnlockPathsRequest{SandboxId: id, All: true})
			return err
		})
		every("post", func(ctx context.Context) error {
			_, err := s.board.PostMessage(ctx, &sandboxv1.PostMessageRequest{SandboxId: id, Text: "hello"})
			return err
		})
		every("watch", func(ctx context.Context) error {
			return briefly(ctx, func(ctx context.Context) {
				w, err := s.board.WatchMessages(ctx, &sandboxv1.WatchMessagesRequest{SandboxId: id})
				for err == nil {
					_, err = w.Recv()
				}
			})
		})
		every("export", func(ctx context.Context) error {
			return briefly(ctx, func(ctx context.Context) {
				f := []sandboxv1.ExportFormat{1, 2, 3, 4}[rand.IntN(4)]
				w, err := s.export.ExportChanges(ctx, &sandboxv1.ExportChangesRequest{SandboxId: id, Format: f})
				for err == nil {
					_, err = w.Recv()
				}
			})
		})
		every("snapshot", func(ctx context.Context) error {
			made, err := s.snapshots.CreateSnapshot(ctx, &sandboxv1.CreateSnapshotRequest{SandboxId: id})
			if err == nil && rand.IntN(2) == 0 {
				_, err = s.snapshots.DeleteSnapshot(ctx, &sandboxv1.DeleteSnapshotRequest{SandboxId: id, Snapshot: made.Name})
			}
			return err
		})
		every("diff", func(ctx context.Context) error {
			_, err := s.sandboxes.Diff(ctx, &sandboxv1.DiffRequest{SandboxId: id, PageSize: 3})
			return err
		})
		every("query", func(ctx context.Context) error {
			_, err := s.export.QuerySandbox(ctx, &sandboxv1.QuerySandboxRequest{SandboxId: id, Statement: "select count(*) from changes"})
			return err
		})
		every("fork", func(ctx context.Context) error {
			forks, err := s.snapshots.ForkSandbox(ctx, &sandboxv1.ForkSandboxRequest{SandboxId: id, Names: []string{"f" + strconv.FormatInt(rand.Int64(), 36)}})
			if err != nil {
				return err
			}
			fork := forks.Sandboxes[0].Id
			var both sync.WaitGroup
			both.Go(func() {
				_, err := s.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: fork})
				s.told("apply fork", ctx, err)
			})
			both.Go(func() {
				_, err := s.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: fork})
				s.told("start fork", ctx, err)
			})
			both.Go(func() {
				_, err := s.snapshots.MergeSandbox(ctx, &sandboxv1.MergeSandboxRequest{SandboxId: fork, FromSandboxId: id})
				s.told("merge", ctx, err)
			})
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			_, err = s.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: fork})
			both.Wait()
			return err
		})
	}
	for range 2 {
		every("applyshaken", func(ctx context.Context) error {
			_, err := s.sandboxes.Apply(ctx, &sandboxv1.ApplyRequest{SandboxId: shaken, OnConflict: sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_OURS})
			return err
		})
	}
	for _, do := range []func(context.Context, *sandboxv1.UndoRequest) error{
		func(ctx context.Context, r *sandboxv1.UndoRequest) error {
			_, err := s.history.Undo(ctx, r)
			return err
		},
		func(ctx context.Context, r *sandboxv1.UndoRequest) error {
			_, err := s.history.Redo(ctx, r)
			return err
		},
	} {
		every("reverse", func(ctx context.Context) error { return do(ctx, &sandboxv1.UndoRequest{SandboxId: shaken}) })
	}
	every("restore", func(ctx context.Context) error {
		_, err := s.sandboxes.StopSandbox(ctx, &sandboxv1.StopSandboxRequest{SandboxId: shaken})
		s.told("stop", ctx, err)
		list, err := s.snapshots.ListSnapshots(ctx, &sandboxv1.ListSnapshotsRequest{SandboxId: shaken})
		if err == nil && len(list.Snapshots) > 0 {
			_, err = s.snapshots.RestoreSnapshot(ctx, &sandboxv1.RestoreSnapshotRequest{SandboxId: shaken, Snapshot: list.Snapshots[rand.IntN(len(list.Snapshots))].Name})
			s.told("restore", ctx, err)
		}
		_, err = s.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: shaken})
		time.Sleep(900 * time.Millisecond)
		return err
	})
	all.Wait()
}

// check looks at the source and the views, while nothing runs.
func (s *storm) check(kept []string) {
	s.t.Helper()
	there, err := filepath.Glob(filepath.Join(s.dir, "d-*"))
	must(s.t, 0, err)
	for _, d := range there {
		for _, name := range []string{"a", "b"} {
			if content, err := os.ReadFile(filepath.Join(d, name)); string(content) != filepath.Base(d)+"\n" {
				s.t.Errorf("half-applied: %s/%s has %q, %v", d, name, content, err)
			}
		}
	}
	for _, id := range kept {
		for _, d := range s.made[id] {
			for _, name := range []string{"a", "b"} {
				read, err := s.sandboxes.ReadView(s.t.Context(), &sandboxv1.ReadViewRequest{SandboxId: id, Path: d + "/" + name})
				if err == nil {
					_, err = read.Recv()
				}
				if err != nil {
					s.t.Errorf("lost in the view of %s: %s/%s: %v", id, d, name, err)
				}
			}
		}
	}
	s.t.Logf("%d in the source, %d made; %v", len(there), len(s.made[kept[0]])+len(s.made[kept[1]]), s.codes)
}

// Many clients apply, undo, take snapshots, restore, fork, destroy, lock, post and cancel at once,
// in sandboxes of one linked directory, and a server is killed meanwhile: no call hangs or fails
// internally, no apply is done by half, and no change is lost.
func TestAStorm(t *testing.T) {
	dir := t.TempDir()
	s := &storm{server: &server{t: t, home: t.TempDir()}, dir: dir, made: map[string][]string{}, codes: map[string]int{}}
	s.begin()
	s.connect()
	linked, err := s.codebases.LinkCodebase(t.Context(), &sandboxv1.LinkCodebaseRequest{Name: "l", OwnerId: "me", Path: dir})
	cb := must(t, linked, err).Id
	kept, shaken := []string{s.sandbox(cb), s.sandbox(cb)}, s.sandbox(cb)
	fds := func() int {
		list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
		return len(list)
	}
	before := fds()
	for round := range 2 { // the second with a kill
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		s.killed = round%2 == 1
		var blown sync.WaitGroup
		blown.Go(func() { s.blow(ctx, kept, shaken) })
		if s.killed {
			time.Sleep(time.Duration(500+rand.IntN(2000)) * time.Millisecond)
			_ = s.cmd.Process.Signal(syscall.SIGKILL)
			time.Sleep(100 * time.Millisecond)
			cancel()
			blown.Wait()
			s.end(syscall.SIGKILL)
			s.serve()
			s.connect()
		}
		blown.Wait()
		cancel()
		s.check(kept)
		if !s.killed {
			testenv.Eventually(t, "the descriptors are closed", func() bool { return fds() <= before+8 })
		}
		t.Logf("descriptors: %d, before %d", fds(), before)
	}
}
