// Package extremes_test gives the real binary the largest and the oddest that it must take:
// names of every byte, a file of two gigabytes, and a million changes. Every byte is compared
// at the end, and memory is measured, not guessed.
package extremes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentfense/agentfense/test/harness"
)

var binary string

// commandTimeout bounds one command.
const commandTimeout = 20 * time.Minute

func TestMain(m *testing.M) {
	harness.Programs(map[string]func(args []string) int{"names": changeNames, "many": makeMany})
	harness.Main(m, &binary, harness.BuildWithServer)
}

// A usage is what a command took.
type usage struct {
	time   time.Duration
	rssKiB int64 // the largest resident set of the command and of what it waited for
}

// must runs a verb that may take long, and returns what it printed and took. Any exit code but 0
// ends the test.
func must(t *testing.T, s *harness.Sandbox, args ...string) (string, usage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := s.Command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("agentfense %.300q: %v\n%.3000s%.3000s", args, err, &stdout, &stderr)
	}
	used := usage{time: time.Since(start), rssKiB: cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss}
	return stdout.String(), used
}

// files returns the path and the content of each file below dir. A directory ends in a slash.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name := path[len(dir)+1:]
		if entry.IsDir() {
			found[name+"/"] = ""
			return nil
		}
		data, err := os.ReadFile(path)
		found[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// same fails the test unless two trees hold the same files.
func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	var text strings.Builder
	for name, content := range want {
		if is, ok := got[name]; !ok {
			fmt.Fprintf(&text, "%.80q is missing\n", name)
		} else if is != content {
			fmt.Fprintf(&text, "%.80q holds %.80q, want %.80q\n", name, is, content)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			fmt.Fprintf(&text, "%.80q should not exist\n", name)
		}
	}
	t.Fatalf("%s:\n%.5000s", what, &text)
}

// tool runs a program of the host, in dir.
func tool(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) || err != nil {
		t.Fatalf("%s %q: %v\n%.3000s", name, args, err, out)
	}
}
