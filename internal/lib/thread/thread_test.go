package thread_test

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/thread"
)

// The tests begin on the main thread, so that a goroutine may find itself there.
func init() { runtime.LockOSThread() }

func TestThreadIsNeverTheMainOne(t *testing.T) {
	runtime.UnlockOSThread()
	for range 100 {
		id := make(chan int)
		thread.Go(func() { id <- unix.Gettid() })
		if <-id == os.Getpid() {
			t.Fatal("it ran on the main thread")
		}
	}
}

func TestThreadEndsWithItsFunction(t *testing.T) {
	id := make(chan int)
	thread.Go(func() { id <- unix.Gettid() })
	tid := <-id
	for unix.Tgkill(os.Getpid(), tid, 0) != unix.ESRCH {
		runtime.Gosched()
	}
}
