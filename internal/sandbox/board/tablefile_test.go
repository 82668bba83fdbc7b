package board

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// always takes every holder for one that runs.
func always(Holder) bool { return true }

// lockAll has a holder lock paths in the table.
func (b *Board) lockAll(t *testing.T, h Holder, paths ...vpath.Path) {
	t.Helper()
	_, err := b.Update(always, func(table *Table) error {
		_, _, err := table.Acquire(h, Request{Paths: paths}, time.Now())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *Board) lockCount(t *testing.T) int {
	t.Helper()
	table, err := b.read()
	if err != nil {
		t.Fatal(err)
	}
	return len(table.Locks)
}

// TestAProcessThatIsKilledLeavesTheTable checks that an incomplete line changes nothing, and that
// the next change removes it.
func TestAProcessThatIsKilledLeavesTheTable(t *testing.T) {
	b, h := newBoard(t), Holder{Name: "a", PID: 1}
	b.lockAll(t, h, "/x")
	path := filepath.Join(b.dir, locksFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"{", `{"version":2,"locks":[`, strings.Repeat("x", 2*tailBytes)} {
		if err := os.WriteFile(path, append(whole, left...), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := b.lockCount(t); n != 1 {
			t.Errorf("after %.20q: %d locks, want 1", left, n)
		}
		b.lockAll(t, h, "/y")
		if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "\n") != 2 || !strings.HasPrefix(string(text), string(whole)) {
			t.Errorf("after %.20q: the file is %q, %v", left, text, err)
		}
		if n := b.lockCount(t); n != 2 {
			t.Errorf("after %.20q: %d locks, want 2", left, n)
		}
	}
}

func TestADamagedTableIsNoEmptyOne(t *testing.T) {
	b, h := newBoard(t), Holder{Name: "a", PID: 1}
	b.lockAll(t, h, "/x")
	path := filepath.Join(b.dir, locksFile)
	for _, text := range []string{`{"version":2}`, "nonsense\n", "{}\n{\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Locks(); !errdefs.Is(err, errdefs.Internal) {
			t.Errorf("%q: %v, want Internal", text, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Locks(); !errdefs.Is(err, errdefs.Internal) {
		t.Errorf("a FIFO: %v, want Internal", err)
	}
}

// TestACrashOfTheHostLeavesAnEmptyTable checks that an empty file has no locks: a file system may
// store the name of a new file and not what was written. No process leaves such a file.
func TestACrashOfTheHostLeavesAnEmptyTable(t *testing.T) {
	b, h := newBoard(t), Holder{Name: "a", PID: 1}
	b.lockAll(t, h, "/x")
	if err := os.Truncate(filepath.Join(b.dir, locksFile), 0); err != nil {
		t.Fatal(err)
	}
	if n := b.lockCount(t); n != 0 {
		t.Errorf("%d locks, want none", n)
	}
	b.lockAll(t, h, "/y")
	if n := b.lockCount(t); n != 1 {
		t.Errorf("%d locks, want 1", n)
	}
}

// TestTheFileOfTheTableStaysSmall makes many changes, also of a table that is larger than the file
// may become.
func TestTheFileOfTheTableStaysSmall(t *testing.T) {
	b, h := newBoard(t), Holder{Name: "a", PID: 1}
	size := func() int64 {
		info, err := os.Stat(filepath.Join(b.dir, locksFile))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	replaced := 0
	for range 600 {
		before, _ := os.Stat(filepath.Join(b.dir, locksFile))
		b.lockAll(t, h, "/x")
		if now, err := os.Stat(filepath.Join(b.dir, locksFile)); err == nil && before != nil && !os.SameFile(before, now) {
			replaced++
		}
		if size() > keptTableBytes {
			t.Fatalf("the file has %d bytes, want at most %d", size(), keptTableBytes)
		}
	}
	if replaced == 0 || replaced > 10 {
		t.Errorf("the file was replaced %d times in 600 changes", replaced)
	}
	for i := range 40 {
		b.lockAll(t, h, vpath.Path("/"+strings.Repeat("y", 4000)+fmt.Sprint(i)))
	}
	if n := b.lockCount(t); n != 41 {
		t.Errorf("%d locks, want 41", n)
	}
	one := size()
	b.lockAll(t, h, "/x")
	if size() > one+100 {
		t.Errorf("a table of %d bytes is kept beside another one: %d", one, size())
	}
}

// TestATableIsReadWhileOthersChangeIt checks that a reader without the lock always finds a table
// that is whole, also while lines that a killed process left are cut off.
func TestATableIsReadWhileOthersChangeIt(t *testing.T) {
	b, h := newBoard(t), Holder{Name: "a", PID: 1}
	b.lockAll(t, h, "/x")
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if table, err := b.read(); err != nil || len(table.Locks) != 1 {
					t.Errorf("%d locks, %v", len(table.Locks), err)
					return
				}
			}
		})
	}
	for range 300 {
		f, err := os.OpenFile(filepath.Join(b.dir, locksFile), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(strings.Repeat("left", 3000))
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		b.lockAll(t, h, "/x")
	}
	close(done)
	readers.Wait()
}
