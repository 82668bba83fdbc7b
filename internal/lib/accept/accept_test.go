package accept_test

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentfense/agentfense/internal/lib/accept"
)

// answers returns an accept that gives the errors in turn, then a connection.
func answers(errs ...error) func() (string, error) {
	return func() (string, error) {
		if len(errs) == 0 {
			return "connection", nil
		}
		err := errs[0]
		errs = errs[1:]
		return "", err
	}
}

func TestErrorsPass(t *testing.T) {
	odd := errors.New("odd")
	for _, tt := range []struct {
		name   string
		errs   []error
		atOnce bool
		want   time.Duration
	}{
		{"no error", nil, false, 0},
		{"the pause doubles", []error{odd, odd, odd}, false, 35 * time.Millisecond},
		{"up to a second", []error{odd, odd, odd, odd, odd, odd, odd, odd, odd, odd}, false, 1275*time.Millisecond + 2*time.Second},
		{"no pause where the caller has mended it", []error{odd, odd}, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, told := time.Now(), 0
				c, err := accept.Next(answers(tt.errs...), func(error) bool { told++; return tt.atOnce }, nil)
				if c != "connection" || err != nil || told != len(tt.errs) {
					t.Errorf("Next = %q, %v after %d errors; want a connection after %d", c, err, told, len(tt.errs))
				}
				if took := time.Since(begun); took != tt.want {
					t.Errorf("it took %s, want %s", took, tt.want)
				}
			})
		})
	}
}

func TestOnlyAClosedListenerEndsIt(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	_, err := accept.Next(answers(errors.New("odd"), &net.OpError{Op: "accept", Err: net.ErrClosed}), func(error) bool { return false }, closed)
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("Next = %v, want ErrClosed", err)
	}
}
