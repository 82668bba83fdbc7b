package fusefs

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestAbortStopsEveryStorer: two may have one file in hand, and the one that
// gives up must not hide the one that stores.
func TestAbortStopsEveryStorer(t *testing.T) {
	var f prefetcher
	if err := f.init(nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for i := range f.storers {
			if err := unix.Munmap(f.storers[i].buf); err != nil {
				t.Error(err)
			}
		}
	}()
	n := &node{}
	if f.abort(n) {
		t.Error("aborted what nobody stores")
	}
	for i := range f.storers {
		f.storers[i].at = n
	}
	if !f.abort(n) {
		t.Error("found no store")
	}
	// A pipe reads the buffer as the FUSE device would.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	for i := range f.storers {
		if _, err := unix.Write(pipe[1], f.storers[i].buf[:1]); err != unix.EFAULT {
			t.Errorf("storer %d could still store: %v", i, err)
		}
	}
}
