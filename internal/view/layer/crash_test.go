package layer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// crashEnv makes the test binary run crashLoop in the given directory.
const crashEnv = "AGENTFENSE_TEST_CRASH_DIR"

const (
	crashFiles = 24
	crashSize  = 40 << 10
)

// TestMain runs the process that TestKilledAtAnyMoment kills.
func TestMain(m *testing.M) {
	if root := os.Getenv(crashEnv); root != "" {
		crashLoop(root)
	}
	os.Exit(m.Run())
}

// crashLoop changes everything repeatedly until it is killed. It writes each new version of
// a file under another name and moves it over the old one, and it renames each directory.
func crashLoop(root string) {
	source, err := os.Open(filepath.Join(root, "source"))
	check(err)
	s, err := Open(Options{Source: source, Dir: filepath.Join(root, "layers"), Store: filepath.Join(root, "frozen")})
	check(err)
	for round := 0; ; round++ {
		for i := range crashFiles {
			dir := crashDir(s, i)
			p := dir.Child(fmt.Sprintf("f%d", i))
			switch round % 4 {
			case 0:
				_, err = s.CopyUp(p)
				check(err)
			case 1:
				replaceFile(s, dir, p, byte('A'+rand.IntN(26)))
			case 2:
				_, err = s.Unlink(p, i%2 == 0)
				check(err)
				replaceFile(s, dir, p, byte('A'+rand.IntN(26)))
			case 3:
				to := vpath.Root.Child(fmt.Sprintf("%c%d", "xy"[rand.IntN(2)], i%4))
				_, err = s.Rename(dir, to, RenameOptions{})
				if err != nil && !os.IsExist(err) {
					check(err)
				}
			}
		}
		if round%5 == 4 {
			check(second(s.Freeze()))
		}
		if round%11 == 10 {
			changes, err := s.Changes()
			check(err)
			var paths []vpath.Path
			for _, c := range changes {
				if !c.Info.IsDir() && c.Kind == Modified {
					paths = append(paths, c.Path)
				}
			}
			check(s.Drop(paths[:rand.IntN(len(paths)+1)]...))
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
}

// crashDir returns the present path of the directory of file i: x or y, then a number.
func crashDir(s *Stack, i int) vpath.Path {
	for _, name := range []string{"x", "y"} {
		p := vpath.Root.Child(fmt.Sprint(name, i%4))
		if _, err := s.Lookup(p); err == nil {
			return p
		}
	}
	check(fmt.Errorf("directory %d is gone", i%4))
	return ""
}

func replaceFile(s *Stack, dir, p vpath.Path, c byte) {
	temp := dir.Child("temp")
	_, _ = s.Unlink(temp, false)
	f, _, err := s.Create(temp, 0o644)
	check(err)
	_, err = f.WriteAt([]byte(strings.Repeat(string(c), crashSize)), 0)
	check(err)
	f.Close()
	_, err = s.Rename(temp, p, RenameOptions{KeepReplaced: true})
	check(err)
}

func TestKilledAtAnyMoment(t *testing.T) {
	root := t.TempDir()
	source := filepath.Join(root, "source")
	for i := range crashFiles {
		dir := filepath.Join(source, fmt.Sprint("x", i%4))
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), []byte(strings.Repeat("s", crashSize)), 0o644))
	}
	before := plainTree(t, source)
	kills := 60
	if testing.Short() {
		kills = 10
	}
	for kill := range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashEnv+"="+root)
		var out strings.Builder
		cmd.Stdout = &out
		must(t, cmd.Start())
		time.Sleep(time.Duration(5+rand.IntN(120)) * time.Millisecond)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		if out.Len() > 0 {
			t.Fatalf("kill %d: the process failed: %s", kill, out.String())
		}
		checkAfterCrash(t, root, kill)
	}
	after := plainTree(t, source)
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("the source changed")
	}
}

// checkAfterCrash opens the stack and checks that each file exists once, with a whole
// version.
func checkAfterCrash(t *testing.T, root string, kill int) {
	t.Helper()
	b := &bench{t: t, source: filepath.Join(root, "source"), dir: filepath.Join(root, "layers")}
	b.open()
	defer b.close()
	if dirs := b.names("/"); len(dirs) != 4 {
		t.Fatalf("kill %d: the root shows %q", kill, dirs)
	}
	missing := 0
	for i := range crashFiles {
		dir := crashDir(b.Stack, i)
		content, err := readView(b.Stack, dir.Child(fmt.Sprint("f", i)))
		if err != nil {
			missing++ // killed between removing and making it
			continue
		}
		if len(content) != crashSize || strings.Count(content, content[:1]) != crashSize {
			t.Fatalf("kill %d: f%d is neither the old nor the new file: %d bytes", kill, i, len(content))
		}
	}
	if missing > 1 {
		t.Fatalf("kill %d: %d files are gone", kill, missing)
	}
	for i := range crashFiles { // make the missing file again for the next round
		p := crashDir(b.Stack, i).Child(fmt.Sprint("f", i))
		if _, err := b.Lookup(p); err != nil {
			b.write(string(p), strings.Repeat("r", crashSize))
		}
	}
	changes, err := b.Changes()
	must(t, err)
	for _, c := range changes {
		if c.Base == nil {
			t.Fatalf("kill %d: %s has no base", kill, c.Path)
		}
		if c.Info.Mode&unix.S_IFMT == 0 {
			t.Fatalf("kill %d: %s has no type", kill, c.Path)
		}
	}
}
