package pollfd

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return fds[0], fds[1]
}

func TestWaitSaysWhatADescriptorHas(t *testing.T) {
	r, w := pipe(t)
	if got, err := Wait(r, unix.POLLIN, 0); got != 0 || err != nil {
		t.Errorf("an empty pipe has %#x, %v", got, err)
	}
	if got, err := Wait(r, unix.POLLIN, time.Millisecond); got != 0 || err != nil {
		t.Errorf("a pipe that stays empty has %#x, %v", got, err)
	}
	if _, err := unix.Write(w, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, patience := range []time.Duration{0, time.Hour, -1} {
		if got, err := Wait(r, unix.POLLIN, patience); got != unix.POLLIN || err != nil {
			t.Errorf("a pipe that holds something has %#x, %v", got, err)
		}
	}
}

// Signals of the kind that the runtime sends to its threads arrive while it waits.
func TestSignalsDoNotEndTheWait(t *testing.T) {
	for range 20 {
		r, w := pipe(t)
		tid := make(chan int)
		type answer struct {
			events int16
			err    error
		}
		answered := make(chan answer, 1)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tid <- unix.Gettid()
			events, err := Wait(r, unix.POLLIN, -1)
			answered <- answer{events, err}
		}()
		thread := <-tid
		for !sleeps(t, thread) {
			runtime.Gosched()
		}
		if err := unix.Tgkill(os.Getpid(), thread, unix.SIGURG); err != nil {
			t.Fatal(err)
		}
		for !sleeps(t, thread) { // it has got the signal, or will
			runtime.Gosched()
		}
		if _, err := unix.Write(w, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if got := <-answered; got.events != unix.POLLIN || got.err != nil {
			t.Fatalf("got %#x, %v, want that there is something to read", got.events, got.err)
		}
	}
}

// sleeps reports whether a thread of ours waits in the kernel (proc_pid_stat(5)).
func sleeps(t *testing.T, tid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(stat, []byte(") S "))
}
