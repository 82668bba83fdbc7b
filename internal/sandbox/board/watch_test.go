package board

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestWaitersShareAWatch has many callers wait at one board. They take one inotify instance, of
// which a user has few, all get the message, and nothing is left.
func TestWaitersShareAWatch(t *testing.T) {
	const callers = 200
	noneLeft(t)
	b := newBoard(t)
	member(t, b, "a")
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if p, err := b.Wait(t.Context(), Query{}, time.Hour); err != nil || len(p.Messages) != 1 {
				t.Errorf("got %v, %v", p, err)
			}
		})
	}
	for waiting(b) < callers {
		time.Sleep(time.Millisecond)
	}
	if n := instances(t); n != 1 {
		t.Errorf("%d inotify instances, want 1", n)
	}
	if _, err := b.Post(Holder{ID: "sb_a", Name: "a"}, Draft{By: ByUser, Topic: DefaultTopic, Text: "x"}); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	noneLeft(t)
}

// TestFewBoardsAreWatched: those who wait at more boards look again and again, and miss nothing.
func TestFewBoardsAreWatched(t *testing.T) {
	noneLeft(t)
	var all sync.WaitGroup
	var boards []*Board
	for range maxWatched + 2 {
		b := newBoard(t)
		boards = append(boards, b)
		if err := b.locked(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if p, err := b.Wait(t.Context(), Query{}, time.Hour); err != nil || len(p.Messages) != 1 {
				t.Errorf("got %v, %v", p, err)
			}
		})
	}
	for instances(t) < maxWatched {
		time.Sleep(time.Millisecond)
	}
	for _, b := range boards {
		if _, err := b.Post(Holder{ID: "sb_a", Name: "a"}, Draft{By: ByUser, Topic: DefaultTopic, Text: "x"}); err != nil {
			t.Fatal(err)
		}
		if n := instances(t); n > maxWatched {
			t.Errorf("%d inotify instances, want at most %d", n, maxWatched)
		}
	}
	all.Wait()
}

// noneLeft waits until nothing is watched: a watch ends without waiting for the kernel.
func noneLeft(t *testing.T) {
	t.Helper()
	for instances(t) > 0 {
		time.Sleep(time.Millisecond)
	}
}

// waiting is how many watch a board.
func waiting(b *Board) int {
	watched.mu.Lock()
	defer watched.mu.Unlock()
	if at := watched.of[b.dir]; at != nil {
		return len(at.watchers)
	}
	return 0
}

// instances counts the inotify instances of this process.
func instances(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if target, err := os.Readlink(name); err == nil && target == "anon_inode:inotify" {
			n++
		}
	}
	return n
}
