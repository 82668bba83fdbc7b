package login

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// A lock is a directory, as npm's package proper-lockfile makes it: who makes it has the lock, and
// touches it. One that was not touched for a while is left from a program that has ended.
const (
	stale = 15 * time.Second // the longest that agents use
	touch = 3 * time.Second  // a third of the shortest
	pause = 200 * time.Millisecond
)

// lock is one that is held.
type lock struct {
	path  string
	made  os.FileInfo
	end   chan struct{}
	ended chan struct{}
}

// acquire takes a lock. Errors: Canceled while another program has it; others of the file system.
func acquire(ctx context.Context, path string) (*lock, error) {
	for {
		err := os.Mkdir(path, 0o700)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if info, err := os.Lstat(path); err == nil && info.IsDir() && time.Since(info.ModTime()) > stale {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty directory
				return nil, err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil, errdefs.New(errdefs.Canceled, "%s: another program has this lock: %w", vpath.Escape(path), ctx.Err())
		case <-time.After(pause):
		}
	}
	made, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	l := &lock{path: path, made: made, end: make(chan struct{}), ended: make(chan struct{})}
	go l.touch()
	return l, nil
}

// touch tells other programs that the lock is held.
func (l *lock) touch() {
	defer close(l.ended)
	tick := time.NewTicker(touch)
	defer tick.Stop()
	for {
		select {
		case <-l.end:
			return
		case now := <-tick.C:
			if l.isOurs() {
				_ = os.Chtimes(l.path, now, now) // else it is taken over, as of a program that has ended
			}
		}
	}
}

// isOurs reports whether no other program has taken the lock over.
func (l *lock) isOurs() bool {
	is, err := os.Lstat(l.path)
	return err == nil && os.SameFile(is, l.made)
}

// release gives the lock back.
func (l *lock) release() error {
	close(l.end)
	<-l.ended
	if !l.isOurs() {
		return nil
	}
	return os.Remove(l.path)
}

// acquireAll takes locks in order. release gives them back.
func acquireAll(ctx context.Context, paths ...string) (release func() error, err error) {
	var held []*lock
	release = func() error {
		var errs []error
		for _, l := range slices.Backward(held) {
			errs = append(errs, l.release())
		}
		return errors.Join(errs...)
	}
	for _, path := range paths {
		l, err := acquire(ctx, path)
		if err != nil {
			return nil, errors.Join(err, release())
		}
		held = append(held, l)
	}
	return release, nil
}
