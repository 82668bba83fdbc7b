//go:build linux

package safefs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// writerDir has the name of the variable that makes the test below play a process that writes.
const writerDir = "AGENTFENSE_TEST_NEW_FILE_IN"

// TestAKilledWriterLeavesNothing kills processes that write a new file. The next new file in the
// directory removes what they left, but neither one that is being written nor files of others.
func TestAKilledWriterLeavesNothing(t *testing.T) {
	if dir := os.Getenv(writerDir); dir != "" {
		n, err := CreateNew(filepath.Join(dir, "killed"))
		fmt.Println(n.Temporary, err)
		select {}
	}
	dir := t.TempDir()
	mine := filepath.Join(dir, ".agentfense-exported")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	running, err := CreateNew(filepath.Join(dir, "running"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		writeAndKill(t, dir)
	}
	if got := len(namesIn(t, dir)); got != 3 {
		t.Errorf("%v: want the user's file, the one that is written, and that of the last killed process", namesIn(t, dir))
	}
	next, err := CreateNew(filepath.Join(dir, "next"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*NewFile{running, next} {
		if err := os.WriteFile(n.Temporary, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := n.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := n.Discard(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := fmt.Sprint(namesIn(t, dir)), "[.agentfense-exported next running]"; got != want {
		t.Errorf("left: %v, want %v", got, want)
	}
}

// writeAndKill starts a process that makes a new file in dir, and kills it.
func writeAndKill(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAKilledWriterLeavesNothing$")
	cmd.Env = append(os.Environ(), writerDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	t.Logf("killing the writer of %s", line)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
