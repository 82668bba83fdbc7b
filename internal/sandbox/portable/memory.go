package portable

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// memoryInterval is how often watchMemory looks: a query fills some MiB in that time.
const memoryInterval = 10 * time.Millisecond

var errMemory = errdefs.New(errdefs.Exhausted, "sql: the query needs too much memory: sort or group fewer rows")

// watchMemory returns a context that ends with errMemory when this process uses limit bytes more
// than now. SQLite's own limit of the heap has no effect with this driver. Call stop at the end.
func watchMemory(ctx context.Context, limit int64) (watched context.Context, stop func(), err error) {
	before, err := residentBytes()
	if err != nil {
		return nil, nil, err
	}
	watched, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(memoryInterval)
		defer tick.Stop()
		for {
			select {
			case <-watched.Done():
				return
			case <-tick.C:
			}
			now, err := residentBytes()
			if err != nil {
				cancel(err)
			} else if now-before > limit {
				cancel(errMemory)
			}
		}
	}()
	return watched, func() { cancel(nil); <-ended }, nil
}

// residentBytes returns how much memory this process has (proc_pid_statm(5)).
func residentBytes() (int64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	var size, resident int64
	if err == nil {
		_, err = fmt.Sscan(string(text), &size, &resident)
	}
	if err != nil {
		return 0, errdefs.New(errdefs.Internal, "sql: read the used memory: %w", err)
	}
	return resident * int64(os.Getpagesize()), nil
}
