package extremes_test

import (
	"archive/tar"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/test/harness"
)

var manyChanges = flag.Int("extremes.changes", 20_000, "number of changes of TestManyChanges")

const (
	perDir = 1000 // files of a directory
	// A command takes at most so much memory, and so much more for each change.
	fixedRSS  = 96 << 20
	changeRSS = 4 << 10
)

func manyName(i int) string { return fmt.Sprintf("d%d/f%d", i/perDir, i) }

// makeMany is a program that makes small files, inside.
func makeMany(args []string) int {
	n, err := strconv.Atoi(args[0])
	for i := 0; err == nil && i < n; i++ {
		if i%perDir == 0 {
			err = os.Mkdir(filepath.Dir(manyName(i)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(manyName(i), []byte(strconv.Itoa(i)), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// So many changes that what grows with their square, or holds all contents, would show. The test
// prints the time for each change.
func TestManyChanges(t *testing.T) {
	s := harness.New(t, binary, nil)
	n := *manyChanges
	run := func(args ...string) string {
		t.Helper()
		out, used := must(t, s, args...)
		t.Logf("%-8s %-12s %10v, %8v a change, %4d MiB", args[0], args[len(args)-1], used.time.Round(1e6), used.time/time.Duration(n), used.rssKiB>>10)
		if most := int64(fixedRSS + n*changeRSS); used.rssKiB<<10 > most {
			t.Errorf("agentfense %s took %d KiB of memory, want at most %d for %d changes", args[0], used.rssKiB, most>>10, n)
		}
		return out
	}
	run(s.ProgramCommand("many", []string{strconv.Itoa(n)}, []string{"--preset", "full-access"})...)
	run("snapshot", s.Name)
	run("fork", s.Name, "forked")
	if out := run("diff", s.Name, "--stat"); strings.Count(out, "\n") != n+1 {
		t.Errorf("diff --stat has %d lines, want %d", strings.Count(out, "\n"), n+1)
	}
	if out := run("diff", "forked", "--json"); strings.Count(out, `"status":"added"`) < n {
		t.Errorf("diff --json has %d files, want %d", strings.Count(out, `"status":"added"`), n)
	}
	want := map[string]string{}
	for i := range n {
		want[filepath.Dir(manyName(i))+"/"] = ""
		want[manyName(i)] = strconv.Itoa(i)
	}
	archive := filepath.Join(t.TempDir(), "many.tar")
	run("export", s.Name, archive, "--format", "tar")
	same(t, "export --format tar", archivedFiles(t, archive), want)
	run("apply", s.Name)
	same(t, "apply", files(t, s.Source), want)
	run("undo", s.Name, "--yes")
	same(t, "undo", files(t, s.Source), nil)
}

// archivedFiles returns the entries of an archive, as files does.
func archivedFiles(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := map[string]string{}
	for archive := tar.NewReader(f); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		content, errRead := io.ReadAll(archive)
		if err := errors.Join(err, errRead); err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(content)
	}
}
