package serve_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// TestAKillAtAnyMoment kills the server while it creates, starts, uploads,
// synchronizes and destroys. Whatever was answered holds afterwards, and nothing
// is half done.
func TestAKillAtAnyMoment(t *testing.T) {
	s := start(t)
	cb := s.codebase(nil)
	writer := s.sandbox(cb)
	synced, uploaded := 0, 0
	made, destroyed := map[string]bool{writer: true}, map[string]bool{}
	for round := range 6 {
		var busy sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		busy.Go(func() {
			for i := synced + 1; ; i++ {
				_, err := s.sandboxes.Exec(ctx, &sandboxv1.ExecRequest{SandboxId: writer, Command: fmt.Sprintf("echo %d > next && mv next synced", i)})
				if err != nil {
					return
				}
				synced = i
			}
		})
		busy.Go(func() {
			for i := uploaded + 1; ; i++ {
				if _, err := s.tryUpload(&sandboxv1.UploadChunk_Metadata{CodebaseId: cb, FilePath: "uploaded"}, fmt.Sprintln(i)); err != nil {
					return
				}
				uploaded = i
			}
		})
		busy.Go(func() {
			for {
				box, err := s.sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: everything})
				if err != nil {
					return
				}
				made[box.Id] = true
				if _, err := s.sandboxes.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxId: box.Id}); err != nil {
					return
				}
				destroyed[box.Id] = false // asked for
				if _, err := s.sandboxes.DestroySandbox(ctx, &sandboxv1.DestroySandboxRequest{SandboxId: box.Id}); err != nil {
					return
				}
				destroyed[box.Id] = true
			}
		})
		time.Sleep(time.Duration(100+rand.IntN(200)) * time.Millisecond)
		s.end(syscall.SIGKILL)
		cancel()
		busy.Wait()
		s.serve()

		list, err := s.sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{PageSize: 1000})
		var listed []string
		for _, box := range must(t, list, err).Sandboxes {
			listed = append(listed, box.Id)
		}
		slices.Sort(listed)
		known := strings.Fields(s.agentfense("ls", "--quiet"))
		slices.Sort(known)
		if !slices.Equal(listed, known) {
			t.Errorf("round %d: the server lists %v, the command line %v", round, listed, known)
		}
		for id := range made {
			gone, asked := destroyed[id]
			if here := slices.Contains(listed, id); gone && here || !asked && !here {
				t.Errorf("round %d: sandbox %s: destroyed %v, listed %v", round, id, gone, here)
			}
		}
		if got := s.status(writer); got != sandboxv1.SandboxStatus_SANDBOX_STATUS_RUNNING {
			t.Fatalf("round %d: the sandbox is %s", round, got)
		}
		for file, least := range map[string]int{"synced": synced, "uploaded": uploaded} {
			if least == 0 {
				continue
			}
			content, err := s.download(cb, file)
			n, parseErr := strconv.Atoi(strings.TrimSpace(content))
			if err != nil || parseErr != nil || n < least || !strings.HasSuffix(content, "\n") {
				t.Errorf("round %d: %s is %q, %v, want %d or more", round, file, content, err, least)
			}
		}
	}
	if synced == 0 || uploaded == 0 || len(made) < 2 {
		t.Errorf("%d synced, %d uploaded, %d made: nothing was tried", synced, uploaded, len(made))
	}
}
