package daemon

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/stats"
)

// after is the idle time of these tests. Their clock is synctest's.
const after = time.Minute

func TestAnIdleServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended, busy atomic.Bool
		i := watchIdle(after, busy.Load, func() { ended.Store(true) })
		is := func(want bool, when string) {
			t.Helper()
			synctest.Wait()
			if got := ended.Load(); got != want {
				t.Fatalf("%s: ended %t, want %t", when, got, want)
			}
		}
		begin := func() { i.HandleConn(t.Context(), &stats.ConnBegin{}) }
		end := func() { i.HandleConn(t.Context(), &stats.ConnEnd{}) }

		time.Sleep(after - time.Second)
		begin()
		time.Sleep(10 * after)
		is(false, "with a connection")
		i.httpState(nil, http.StateNew)
		i.httpState(nil, http.StateActive)
		end()
		time.Sleep(10 * after)
		is(false, "with a connection of REST")
		i.httpState(nil, http.StateIdle)
		i.httpState(nil, http.StateClosed)
		time.Sleep(after - time.Second)
		is(false, "a moment after the last connection")
		begin()
		end()
		time.Sleep(after - time.Second)
		is(false, "a moment after the last but short connection")
		busy.Store(true)
		time.Sleep(10 * after)
		is(false, "with something to do")
		busy.Store(false)
		time.Sleep(after)
		is(true, "with nobody, and nothing to do")
	})
}

func TestAnIdleServerThatEndsOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := watchIdle(after, func() bool { return false }, func() { t.Error("it is ended a second time") })
		i.opened()
		i.stop()
		i.closed()
		time.Sleep(10 * after)
		synctest.Wait()
	})
}
