package fusefs

import (
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// slowKernel takes a notification when it may.
type slowKernel struct {
	has  chan struct{}
	may  chan struct{}
	took bool
}

func (k *slowKernel) EntryNotify(uint64, string) fuse.Status { return fuse.OK }

func (k *slowKernel) InodeNotify(uint64, int64, int64) fuse.Status {
	close(k.has)
	<-k.may
	k.took = true
	return fuse.OK
}

// TestBarrierWaitsForWhatIsSent checks that a barrier returns after the notification that the
// kernel is taking, and does not wait for a notifier that has none.
func TestBarrierWaitsForWhatIsSent(t *testing.T) {
	var q notifier
	q.init()
	q.barrier() // there is no goroutine yet that could answer
	k := &slowKernel{has: make(chan struct{}), may: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		q.run(k)
		close(ended)
	}()
	q.inode(1)
	<-k.has
	passed := make(chan bool)
	go func() {
		q.barrier()
		passed <- k.took
	}()
	waits := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.queue) > 0
	}
	for !waits() {
		select {
		case <-passed:
			t.Fatal("the barrier has passed a notification")
		case <-time.After(time.Millisecond):
		}
	}
	close(k.may)
	if !<-passed {
		t.Error("the barrier has passed a notification")
	}
	q.close()
	<-ended
}
