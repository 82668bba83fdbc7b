package attack_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/test/harness"
)

// Two sandboxes apply to one source at the same time, and one of them is killed (kill -9)
// somewhere. When the next command has run, the source has all changes of each, or none. Kills at
// each step, full disks and journals that a power loss has torn are tested in test/badinput and in
// internal/sandbox/apply.
func TestAppliesThatAreKilledLeaveAllOrNothing(t *testing.T) {
	const files = 40
	s := harness.New(t, binary, map[string]string{"keep": "theirs\n"})
	names := []string{"one", "two"}
	for _, name := range names {
		for i := range files {
			s.Write(fmt.Sprintf("%s/f%d", name, i), "old\n")
		}
		s.Name = name
		wantCode(t, s.Run(fmt.Sprintf("cd %s; for f in *; do echo new > $f; done; mkdir made; echo new > made/f; rm f0", name), "--preset", "full-access"), 0)
	}
	for round := range 4 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		first, second := s.Command(ctx, "apply", "one"), s.Command(ctx, "apply", "two")
		if first.Start() != nil || second.Start() != nil {
			t.Fatal("apply does not start")
		}
		time.Sleep(time.Duration(30*round) * time.Millisecond) // wherever that is: the result must hold
		_ = first.Process.Kill()
		_, _ = first.Process.Wait()
		if err := second.Wait(); err != nil {
			t.Errorf("the other apply: %v", err)
		}
		cancel()
		s.Agentfense("apply", "two", "there/is/no/such/change")
		for i, name := range names {
			fresh := 0
			for f := range files {
				content, err := os.ReadFile(filepath.Join(s.Source, name, fmt.Sprintf("f%d", f)))
				if err != nil || string(content) == "new\n" {
					fresh++
				}
			}
			if _, err := os.Stat(filepath.Join(s.Source, name, "made", "f")); err == nil {
				fresh++
			}
			if fresh != files+1 && (i == 1 || fresh != 0) {
				t.Errorf("round %d: %d of %d changes of %s are applied", round, fresh, files+1, name)
			}
			if fresh > 0 {
				agentfense(t, s, "undo", name, "--yes")
			}
		}
		if s.Read("keep") != "theirs\n" || s.Read("one/f0") != "old\n" {
			t.Error("the source is not as before")
		}
		left, err := filepath.Glob(filepath.Join(s.Source, "*", ".agentfense-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left %s, %v", strings.Join(left, " "), err)
		}
	}
}
