// Package accept takes connections from a listener in spite of errors.
package accept

import (
	"errors"
	"net"
	"time"
)

// The pauses after an error, each twice the one before.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// Next returns what accept does, once that is no error. Only net.ErrClosed ends it: accept(2)
// fails for want of descriptors or memory, and for what went wrong with one connection.
// failed gets each other error; unless it returns true, Next pauses before it tries again, or
// until closed is. Errors: net.ErrClosed.
func Next[C any](accept func() (C, error), failed func(error) (atOnce bool), closed <-chan struct{}) (C, error) {
	for pause := firstPause; ; {
		c, err := accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		if failed(err) {
			continue
		}
		select {
		case <-time.After(pause):
		case <-closed:
		}
		pause = min(2*pause, lastPause)
	}
}
