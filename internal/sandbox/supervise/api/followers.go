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
	"github.com/agentfense/agentfense/internal/sandbox/board"
)

// maxKeptFollowers bounds the connections that Followers keeps open between two changes.
const maxKeptFollowers = 32

// Followers are the supervisors of other sandboxes, which are told that the locks have changed.
// Connections to them stay open, because a connection takes longer than the rest. The zero value
// has none. Its methods may be called concurrently.
type Followers struct {
	mu   sync.Mutex
	kept map[string]Conn // by the directory of the sandbox; none is in use
}

// LocksChanged is a change of the locks of a source.
type LocksChanged struct {
	board.Change
	// Rules counts the changes of the rules of the sandbox whose locks have begun.
	Rules uint64 `json:"rules,omitempty"`
}

// Tell has the live views of the sandboxes in dirs follow the locks: by a change, or with nil as the
// table has them. It returns when all have answered, or ctx is over. A view that follows answers no
// operation by the old locks. The others are in failed, by their directories.
func (f *Followers) Tell(ctx context.Context, dirs []string, change *LocksChanged) (failed map[string]error) {
	failed = map[string]error{}
	request := Request{Op: OpLocks, Locks: change}
	text, err := messages.Encode(request)
	if err != nil {
		for _, dir := range dirs {
			failed[dir] = err
		}
		return failed
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
		if err := f.await(ctx, dir, asked[i], request); err != nil {
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

// ask sends the request without waiting for the answer. It returns no connection if that fails.
func (f *Followers) ask(ctx context.Context, dir string, request []byte) Conn {
	c := f.take(dir)
	if c.UnixConn != nil && sendLocks(c, request) {
		return c
	}
	c, err := At(dir).connect(ctx) // for the first time, or of another run of the sandbox
	if err == nil && sendLocks(c, request) {
		return c
	}
	return Conn{}
}

// sendLocks sends the request, or closes the connection.
func sendLocks(c Conn, request []byte) bool {
	err := c.SetDeadline(time.Time{}) // the last context may be over
	if err == nil {
		_, err = c.Write(request)
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
func (f *Followers) await(ctx context.Context, dir string, c Conn, request Request) error {
	client := At(dir)
	if c.UnixConn == nil {
		return client.takeLocks(ctx, request)
	}
	var answer Reply
	files, err := c.Receive(&answer)
	CloseAll(files...)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		defer c.Close()
		if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return errdefs.New(errdefs.Canceled, "supervisor: %w", ctx.Err())
		}
		return errdefs.New(errdefs.Precondition, "%w", client.silence(c))
	case err != nil:
		c.Close()
		return client.takeLocks(ctx, request)
	case answer.Error != nil:
		c.Close()
		return answer.Error.Err()
	}
	f.put(dir, c)
	return nil
}

// takeLocks is Tell for one sandbox, with a connection of its own.
func (c *Client) takeLocks(ctx context.Context, r Request) error {
	_, err := c.call(ctx, r)
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
