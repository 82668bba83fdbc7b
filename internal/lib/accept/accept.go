// Package accept accepts connections and retries after errors.
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

// Next calls accept until it succeeds. Only net.ErrClosed ends it: accept(2) also fails when
// descriptors or memory run out, and for an error of one connection. failed gets each other error;
// unless it returns true, Next pauses before it tries again, or until closed is closed. Errors:
// net.ErrClosed.
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
