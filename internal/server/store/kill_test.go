package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/server/store"
)

// childVariable makes the test binary a writer to the database it names.
const childVariable = "AGENTFENSE_TEST_STORE"

// child adds codebases and sandboxes until it is killed, and prints the id of
// each once it is stored.
func child(path string) {
	ctx := context.Background()
	s, err := store.Open(ctx, path, store.Options{})
	for i := int64(0); err == nil; i++ {
		c := codebase("o", i)
		b := sandbox("o", c.ID, i)
		if err = s.AddCodebase(ctx, c, 0); err != nil {
			break
		}
		fmt.Println(c.ID)
		if err = s.AddSandbox(ctx, b, 0); err == nil {
			fmt.Println(b.ID)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A writer that is killed at any moment loses nothing it was told is stored.
func TestKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	self, err := os.Executable()
	must(t, err)
	var told []string
	for round := range 8 {
		told = append(told, killedAfter(t, self, path, 5+17*round)...)
		s := open(t, path, store.Options{})
		for _, key := range told {
			if _, err := s.Codebase(t.Context(), id.Codebase(key)); err == nil {
				continue
			}
			if _, err := s.Sandbox(t.Context(), id.Sandbox(key)); err != nil {
				t.Errorf("round %d: %s was stored and is lost: %v", round, key, err)
			}
		}
		must(t, s.AddCodebase(t.Context(), codebase("after", int64(round)), 0))
		must(t, s.Close())
		checkWhole(t, path)
	}
}

// killedAfter starts a child, kills it once it has told of so many ids, and
// returns all of which it told.
func killedAfter(t *testing.T, self, path string, ids int) []string {
	t.Helper()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var told []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		told = append(told, lines.Text())
		if len(told) == ids {
			must(t, cmd.Process.Kill())
		}
	}
	cmd.Wait()
	if len(told) < ids {
		t.Fatalf("the child ended after %d of %d ids: %v", len(told), ids, cmd.ProcessState)
	}
	return told
}

func checkWhole(t *testing.T, path string) {
	t.Helper()
	db := rawOpen(t, path)
	defer db.Close()
	var answer string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&answer); err != nil || answer != "ok" {
		t.Errorf("integrity_check: %s, %v", answer, err)
	}
}
