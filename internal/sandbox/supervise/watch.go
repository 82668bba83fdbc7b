package supervise

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/fusefs"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/vpath"
)

// What watching is bounded by: clients at once, and what is kept for one that
// does not take it.
const (
	maxWatches      = 64
	maxPending      = 10_000
	maxPendingBytes = 1 << 20
)

// watchPause is how long changes are gathered after some have been told.
const watchPause = 20 * time.Millisecond

// watchTable holds who watches the view.
type watchTable struct {
	mu     sync.Mutex
	all    map[*watch]struct{}
	toggle func(on bool) // told of the first and after the last
}

// add takes a watch in. Errors: Exhausted.
func (t *watchTable) add(w *watch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) >= maxWatches {
		return fault.New(fault.Exhausted, "watch: %d clients watch the sandbox already", maxWatches)
	}
	if t.all == nil {
		t.all = map[*watch]struct{}{}
	}
	t.all[w] = struct{}{}
	t.toggle(true)
	return nil
}

func (t *watchTable) remove(w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, w)
	t.toggle(len(t.all) > 0)
}

func (t *watchTable) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all) == 0
}

// note tells everybody of a change. A rename is a deletion and a creation.
func (t *watchTable) note(c fusefs.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.all {
		switch {
		case c.Kind == fusefs.Lost:
			w.lose()
		case c.Kind != Renamed:
			w.note(c.Path, c.Kind)
		default:
			w.note(c.Path, Deleted)
			kind := Created
			if c.Over {
				kind = Modified
			}
			w.note(c.To, kind)
		}
	}
}

// watchRequest asks for the changes at a path and below.
type watchRequest struct {
	Path      []byte `json:"path"`
	Recursive bool   `json:"recursive,omitempty"` // not only what is in it directly
}

// Watched is what has changed since the message before, by path. With Lost more
// had changed before than could be kept.
type Watched struct {
	Changes []Changed `json:"changes,omitempty"`
	Lost    bool      `json:"lost,omitempty"`
}

// watch keeps what one client has yet to be told.
type watch struct {
	path      vpath.Path
	recursive bool
	wake      chan struct{} // has room for one

	mu      sync.Mutex
	pending map[vpath.Path]ChangeKind
	bytes   int // of the pending paths
	lost    bool
}

// note adds a change to what is pending, if it is watched. What becomes of a
// directory above the watched path becomes of that, too.
func (w *watch) note(p vpath.Path, kind ChangeKind) {
	switch at := p.Plain(); {
	case at == w.path:
	case w.path.Within(at):
		if kind == Modified {
			return
		}
		if !p.IsOwn() {
			p = w.path
		}
	case !at.Within(w.path), !w.recursive && at.Dir() != w.path:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if old, known := w.pending[p]; known {
		w.mergeLocked(p, old, kind)
		return
	}
	if len(w.pending) >= maxPending || w.bytes+len(p) > maxPendingBytes {
		w.loseLocked()
		return
	}
	w.pending[p] = kind
	w.bytes += len(p)
	w.rouse()
}

// mergeLocked makes one of a change that is pending and one that follows it.
func (w *watch) mergeLocked(p vpath.Path, old, kind ChangeKind) {
	switch {
	case old == Created && kind == Deleted:
		delete(w.pending, p)
		w.bytes -= len(p)
	case old == Created:
	case old == Deleted && kind == Created:
		w.pending[p] = Modified
	default:
		w.pending[p] = kind
	}
}

// lose says that something was lost.
func (w *watch) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loseLocked()
}

func (w *watch) loseLocked() {
	clear(w.pending)
	w.bytes, w.lost = 0, true
	w.rouse()
}

func (w *watch) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns as much as a message holds of what is pending; what p does not
// grant is left out, also a directory that shows for the sake of what is in it.
func (w *watch) take(p *policy.Policy) Watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := Watched{Lost: w.lost}
	w.lost = false
	paths := make([]vpath.Path, 0, len(w.pending))
	for path := range w.pending {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	room := maxEffectBytes
	for _, path := range paths {
		if len(told.Changes) == maxEffects || room < 0 {
			w.rouse()
			break
		}
		if p.Decide(path).Permission != policy.None {
			told.Changes = append(told.Changes, Changed{Path: path.Text(), Kind: w.pending[path]})
			room -= len(path)
		}
		delete(w.pending, path)
		w.bytes -= len(path)
	}
	return told
}

// handleWatch tells the client at c what changes in the view until it leaves. It
// is no reason to stay.
func (s *supervisor) handleWatch(ctx context.Context, c conn, r watchRequest) {
	s.release()
	defer s.holdAgain()
	path, err := vpath.Parse(string(r.Path))
	w := &watch{path: path, recursive: r.Recursive, wake: make(chan struct{}, 1), pending: map[vpath.Path]ChangeKind{}}
	if err == nil {
		err = s.watches.add(w)
	}
	if err != nil {
		s.warn("control: refusal not delivered", c.send(reply{Error: failureOf(err)}))
		return
	}
	defer s.watches.remove(w)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		var nothing request
		unasked, _ := c.receive(&nothing) // it returns when the client leaves
		closeAll(unasked...)
		cancel()
		c.Close()
	}()
	err = c.send(reply{OK: true})
	for err == nil {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		case <-s.stopping:
			return
		}
		told := w.take(s.view.Policy())
		if len(told.Changes) > 0 || told.Lost {
			err = c.send(reply{Watched: &told})
		}
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
		}
	}
}

// holdAgain takes back a release, for whoever releases once more.
func (s *supervisor) holdAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds++
}

// ViewWatch tells of changes of a view.
type ViewWatch struct {
	conn conn
	stop func() bool
}

// Watch has the changes at a path and below told from now on, until ctx ends.
// Errors: NotFound where no supervisor is alive; Exhausted.
func (c *Client) Watch(ctx context.Context, path vpath.Path, recursive bool) (*ViewWatch, error) {
	cn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &ViewWatch{conn: cn, stop: context.AfterFunc(ctx, func() { cn.Close() })}
	answer, _, err := c.ask(ctx, cn, firstLook, request{Op: opWatch, Watch: &watchRequest{Path: []byte(path), Recursive: recursive}})
	if err == nil && answer.Error != nil {
		err = answer.Error.err()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Next waits for changes. It is io.EOF once the sandbox has stopped. Errors:
// Canceled.
func (w *ViewWatch) Next(ctx context.Context) (Watched, error) {
	var answer reply
	_, err := w.conn.receive(&answer)
	switch {
	case err != nil && fault.Is(lost(ctx, err), fault.Canceled):
		return Watched{}, lost(ctx, err)
	case err != nil:
		return Watched{}, io.EOF
	case answer.Watched == nil:
		return Watched{}, fault.New(fault.Internal, "supervisor: unexpected answer to %s", opWatch)
	}
	return *answer.Watched, nil
}

// Close ends the watch.
func (w *ViewWatch) Close() error {
	w.stop()
	return w.conn.Close()
}
