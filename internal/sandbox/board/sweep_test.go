package board

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// TestABoardGoesWithTheLastSandboxOfItsSource checks that messages stay while any sandbox of the
// source exists, also one that does not run, and that the board is removed with the last one.
func TestABoardGoesWithTheLastSandboxOfItsSource(t *testing.T) {
	home := newBoard(t).home
	source, err := home.ResolveSource(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := Of(home, source, "")
	for _, name := range []string{"a", "b"} {
		if _, err := home.Create(record.Record{Source: source, Name: name, Workspace: "/workspace", Runtime: record.RuntimeBwrap, Net: record.NetNone}); err != nil {
			t.Fatal(err)
		}
	}
	stranger := Of(home, source, "an owner without a sandbox")
	for _, board := range []*Board{b, stranger} {
		if _, err := board.Post(Holder{Name: "a"}, Draft{Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	exists := func(board *Board, want bool) {
		t.Helper()
		if _, err := os.Stat(board.dir); (err == nil) != want {
			t.Errorf("the board: %v, want it to be there: %t", err, want)
		}
	}
	sweep := func() {
		t.Helper()
		if err := Sweep(home); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	exists(b, true)
	exists(stranger, false)
	if err := home.Remove("a"); err != nil {
		t.Fatal(err)
	}
	sweep()
	exists(b, true)

	damaged := filepath.Join(home.Dir(), "sandboxes", "b", "sandbox.json")
	text, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	sweep()
	exists(b, true) // perhaps it is the one of the damaged sandbox
	if err := os.WriteFile(damaged, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := home.Remove("b"); err != nil {
		t.Fatal(err)
	}
	sweep()
	exists(b, false)
}

// TestABoardThatIsRemovedInPartGoes checks that a board is removed completely after a process was
// killed while it made or removed it.
func TestABoardThatIsRemovedInPartGoes(t *testing.T) {
	b := newBoard(t)
	for name, end := range map[string]func() error{
		"a sweep": func() error { return Sweep(b.home) },
		"a leave": func() error {
			_, err := Of(b.home, record.Source{Path: "/another", Ino: 2}, "").Leave(Holder{Name: "a"})
			return err
		},
	} {
		if err := b.makeFiles(); err != nil {
			t.Fatal(err)
		}
		if err := end(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(b.dir); err == nil {
			t.Errorf("%s: the board is there", name)
		}
	}
}

// TestTheBoardOfAKilledSupervisorIsRemoved checks that a board without messages, whose members
// ended without Leave, goes when a member of another one leaves.
func TestTheBoardOfAKilledSupervisorIsRemoved(t *testing.T) {
	b := newBoard(t)
	h := member(t, b, "a")
	killed := Of(b.home, record.Source{Path: "/another", Ino: 2}, "")
	if err := killed.Join(Holder{Name: "gone"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Leave(h); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killed.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the board of the killed supervisor: %v", err)
	}
}

// TestAMessageOnAFullDisk posts messages until the disk is full. One that is refused is not there,
// and neither is half of it; its sandbox has the status of before. With room again all goes on.
func TestAMessageOnAFullDisk(t *testing.T) {
	testenv.Root(t)
	for _, topic := range []string{"t", StatusTopic} {
		t.Run(topic, func(t *testing.T) {
			disk := t.TempDir()
			if err := unix.Mount("full", disk, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
			home, err := record.OpenHomeAt(filepath.Join(disk, "home"))
			if err != nil {
				t.Fatal(err)
			}
			b := Of(home, record.Source{Path: "/source", Ino: 1}, "")
			h := member(t, b, "a")
			post := func(n int) error {
				_, err := b.Post(h, Draft{Topic: topic, Text: fmt.Sprint(n, strings.Repeat("x", 3000))})
				return err
			}
			if err := post(0); err != nil {
				t.Fatal(err)
			}
			filler := filepath.Join(disk, "filler")
			_ = os.WriteFile(filler, make([]byte, 8<<20), 0o600) // as much as there is room for
			info, err := os.Stat(filler)
			if err == nil {
				err = os.Truncate(filler, (info.Size()/int64(os.Getpagesize())-1)*int64(os.Getpagesize()))
			}
			if err != nil {
				t.Fatal(err)
			}
			posted, failed := 1, error(nil)
			for failed == nil && posted < 100 {
				if failed = post(posted); failed == nil {
					posted++
				}
			}
			if !errdefs.Is(failed, errdefs.Exhausted) {
				t.Fatalf("after %d messages: %v, want Exhausted", posted, failed)
			}
			check := func() {
				t.Helper()
				p, err := b.Read(Query{})
				if err != nil || len(p.Messages) != posted || p.Next != uint64(posted) {
					t.Fatalf("%d messages until %d, %v, want %d", len(p.Messages), p.Next, err, posted)
				}
				members, err := b.Statuses()
				if err != nil || len(members) != 1 {
					t.Fatalf("members: %v, %v", members, err)
				}
				if status := members[0].Status; topic == StatusTopic && (status == nil || status.Seq != uint64(posted)) {
					t.Errorf("the status is %v, want message %d", status, posted)
				}
			}
			check()
			if left, _ := filepath.Glob(filepath.Join(b.dir, "*.new")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			if err := post(posted); err != nil {
				t.Fatal(err)
			}
			posted++
			check()
		})
	}
}
