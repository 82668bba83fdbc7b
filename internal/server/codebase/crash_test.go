package codebase

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// crashEnv makes the test binary the process that is killed.
const crashEnv = "AGENTFENSE_TEST_CRASH_DIR"

const (
	crashFiles = 16
	crashSize  = 60 << 10
)

// TestMain runs the process that TestKilledAtAnyMoment kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashEnv); dir != "" {
		if err := crashLoop(dir); err != nil {
			fmt.Println(err)
		}
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func crashFile(i int) vpath.Path { return vpath.Path(fmt.Sprintf("/d%d/e/f%d", i%3, i)) }

// crashLoop uploads files of one letter each, removes and makes directories and
// codebases, until it is killed.
func crashLoop(dir string) error {
	s, err := Open(Options{Dir: dir})
	if err != nil {
		return err
	}
	ids, err := s.IDs()
	if err != nil {
		return err
	}
	c, err := s.Get(ids[0])
	if err != nil {
		return err
	}
	for {
		for i := range crashFiles {
			u, err := c.Upload(crashFile(i), crashSize, 0)
			if err != nil {
				return err
			}
			letter := strings.Repeat(string(rune('A'+rand.IntN(26))), crashSize/4)
			for range 4 {
				if _, err := io.WriteString(u, letter); err != nil {
					return err
				}
			}
			if _, err := u.Commit(); err != nil {
				return err
			}
		}
		if err := crashAround(s, c); err != nil {
			return err
		}
	}
}

func crashAround(s *Store, c *Codebase) error {
	if err := c.MakeDir("/hollow/inner", 0o700); err != nil {
		return err
	}
	if err := c.Remove("/hollow"); err != nil {
		return err
	}
	other, err := s.Create(id.NewCodebase())
	if err != nil {
		return err
	}
	if _, err := upload(other, "/a/b", "x", 0); err != nil {
		return err
	}
	return s.Delete(other.ID())
}

func TestKilledAtAnyMoment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codebases")
	s := openStore(t, dir, nil)
	c, err := s.Create(id.NewCodebase())
	must(t, err)
	for i := range crashFiles {
		_, err := upload(c, crashFile(i), strings.Repeat("s", crashSize), 0)
		must(t, err)
	}
	must(t, s.Close())
	kills := 40
	if testing.Short() {
		kills = 10
	}
	for kill := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashEnv+"="+dir)
		var out strings.Builder
		cmd.Stdout = &out
		must(t, cmd.Start())
		time.Sleep(time.Duration(5+rand.IntN(60)) * time.Millisecond)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
		if out.Len() > 0 {
			t.Fatalf("kill %d: the process failed: %s", kill, out.String())
		}
		checkAfterCrash(t, dir, c.ID())
	}
}

// checkAfterCrash opens the store; all files are there, old or new, and what is
// told of them is right.
func checkAfterCrash(t *testing.T, dir string, id ID) {
	t.Helper()
	s, err := Open(Options{Dir: dir})
	must(t, err)
	defer s.Close()
	c, err := s.Get(id)
	must(t, err)
	for i := range crashFiles {
		content, err := download(c, crashFile(i))
		if err != nil || len(content) != crashSize || strings.Count(content, content[:1]) != crashSize {
			t.Fatalf("%s is neither the old nor the new file: %d bytes, %v", crashFile(i), len(content), err)
		}
	}
	wantUsage(t, c, crashFiles, crashFiles*crashSize)
	wantEmptyStaging(t, c)
	if _, err := c.List(t.Context(), "/hollow", false); err == nil {
		if _, err := c.List(t.Context(), "/hollow/inner", false); err != nil {
			t.Fatalf("a directory was made without what it was made for: %v", err)
		}
	}
	ids, err := s.IDs()
	must(t, err)
	for _, other := range ids {
		if other != id { // killed between its making and its deletion
			must(t, s.Delete(other))
		}
	}
}
