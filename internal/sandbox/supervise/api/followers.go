package api

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pollfd"
)

// maxKeptFollowers bounds the connections that Followers keeps open between two changes.
const maxKeptFollowers = 32

// maxChangeBytes bounds a change that is sent. In place of a larger one the others read the table:
// a supervisor that does not read would keep the sender waiting once the buffer of its socket is
// full.
const maxChangeBytes = 32 << 10

// Followers are the supervisors of other sandboxes, which are told that the locks have changed.
// Connections to them stay open, because a connection takes longer than the rest. The zero value
// has none. Its methods may be called concurrently.
type Followers struct {
	mu   sync.Mutex
	kept map[string]Conn // by the directory of the sandbox; none is in use
}

// Tell has the live views of the sandboxes in dirs follow the locks: by a change, or with nil as
// the table has them. It returns when all have answered, or ctx is over. A view that follows
// answers no operation by the old locks. The others are in failed, by their directories.
func (f *Followers) Tell(ctx context.Context, dirs []string, change *LocksChanged) (failed map[string]error) {
	failed = map[string]error{}
	text := change.appendTo(nil)
	if len(text) > maxChangeBytes {
		text = nil
	}
	asked := make([]Conn, len(dirs)) // without a connection: not asked
	for i, dir := range dirs {
		asked[i] = f.ask(ctx, dir, text)
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		for _, c := range asked {
			if c.UnixConn != nil {
				_ = c.SetDeadline(time.Unix(1, 0))
			}
		}
	})
	defer func() {
		if !stop() {
			<-over
		}
	}()
	for i, dir := range dirs {
		if ctx.Err() != nil {
			<-over
			asked[i].letAnswer()
		}
		if err := f.await(ctx, dir, asked[i], text); err != nil {
			failed[dir] = err
		}
	}
	return failed
}

// Keep closes the connections to other sandboxes than those in dirs.
func (f *Followers) Keep(dirs []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.kept) == 0 {
		return
	}
	wanted := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		wanted[dir] = true
	}
	for dir, c := range f.kept {
		if !wanted[dir] {
			c.Close()
			delete(f.kept, dir)
		}
	}
}

// ask sends the change without waiting for the answer. It returns no connection if that fails.
func (f *Followers) ask(ctx context.Context, dir string, change []byte) Conn {
	c := f.take(dir)
	if c.UnixConn != nil && sendLocks(c, change) {
		return c
	}
	c, err := beginLocks(ctx, dir) // for the first time, or of another run of the sandbox
	if err == nil && sendLocks(c, change) {
		return c
	}
	return Conn{}
}

// beginLocks opens a connection for changes.
func beginLocks(ctx context.Context, dir string) (Conn, error) {
	c, err := At(dir).connect(ctx)
	if err == nil {
		if err = c.Send(Request{Op: OpLocks}); err != nil {
			c.Close()
		}
	}
	return c, err
}

// sendLocks sends the change, or closes the connection.
func sendLocks(c Conn, change []byte) bool {
	err := c.SetDeadline(time.Time{}) // the last context may be over
	if err == nil {
		err = messages.SendText(c.UnixConn, change)
	}
	if err != nil {
		c.Close()
	}
	return err == nil
}

// letAnswer gives a connection a new deadline if an answer has arrived before the old one. Go would
// not read it.
func (c Conn) letAnswer() {
	if c.UnixConn == nil {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	var has int16
	_ = raw.Control(func(fd uintptr) { has, _ = pollfd.Wait(int(fd), unix.POLLIN, 0) })
	if has != 0 {
		_ = c.SetDeadline(time.Now().Add(lookPatience))
	}
}

// await waits for the answer on c, and keeps c. If c has ended, its supervisor has, and await asks
// anew.
func (f *Followers) await(ctx context.Context, dir string, c Conn, change []byte) error {
	client := At(dir)
	if c.UnixConn == nil {
		return client.takeLocks(ctx, change)
	}
	refusal, err := receiveFollowed(c)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		defer c.Close()
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return errdefs.New(errdefs.Canceled, "supervisor: %w", ctx.Err())
		}
		return errdefs.New(errdefs.Precondition, "%w", client.silence(c))
	case err != nil:
		c.Close()
		return client.takeLocks(ctx, change)
	case refusal != nil:
		c.Close()
		return refusal.Err()
	}
	f.put(dir, c)
	return nil
}

// takeLocks is Tell for one sandbox, with a connection of its own.
func (c *Client) takeLocks(ctx context.Context, change []byte) error {
	cn, err := beginLocks(ctx, c.dir)
	if err != nil {
		return err
	}
	defer cn.Close()
	stop := context.AfterFunc(ctx, func() { cn.Close() })
	defer stop()
	g := c.guard(ctx, cn, FirstLook)
	var refusal *failure
	if err = messages.SendText(cn.UnixConn, change); err == nil {
		refusal, err = receiveFollowed(cn)
	}
	if err = g.end(err); err != nil && !IsSilent(err) {
		return lost(ctx, err)
	}
	if err == nil && refusal != nil {
		return refusal.Err()
	}
	return err
}

func (f *Followers) take(dir string) Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.kept[dir]
	delete(f.kept, dir)
	return c
}

// put keeps a connection on which no answer is outstanding.
func (f *Followers) put(dir string, c Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, another := f.kept[dir]; another || len(f.kept) >= maxKeptFollowers {
		c.Close()
		return
	}
	if f.kept == nil {
		f.kept = map[string]Conn{}
	}
	f.kept[dir] = c
}
