package supervise

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/policy"
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

// watchTable holds who watches the views.
type watchTable struct {
	mu     sync.Mutex
	all    map[*watch]struct{}
	toggle func(mount string, on bool) // told of the first of a view and after the last
}

// add takes a watch in. Errors: Exhausted.
func (t *watchTable) add(w *watch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) >= maxWatches {
		return errdefs.New(errdefs.Exhausted, "watch: %d clients watch the sandbox already", maxWatches)
	}
	if t.all == nil {
		t.all = map[*watch]struct{}{}
	}
	t.all[w] = struct{}{}
	t.toggle(w.mount, true)
	return nil
}

func (t *watchTable) remove(w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, w)
	t.toggle(w.mount, t.watchesLocked(w.mount))
}

// watches reports whether a client watches a mount's view, "" for the workspace's.
func (t *watchTable) watches(mount string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watchesLocked(mount)
}

func (t *watchTable) watchesLocked(mount string) bool {
	for w := range t.all {
		if w.mount == mount {
			return true
		}
	}
	return false
}

// note tells everybody of a change in a mount, "" for the workspace. A rename is a deletion and a
// creation.
func (t *watchTable) note(mount string, c fusefs.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.all {
		switch {
		case w.mount != mount:
		case c.Kind == fusefs.Lost:
			w.lose()
		case c.Kind != api.Renamed:
			w.note(c.Path, c.Kind)
		default:
			w.note(c.Path, api.Deleted)
			kind := api.Created
			if c.Over {
				kind = api.Modified
			}
			w.note(c.To, kind)
		}
	}
}

// watch keeps what one client has yet to be told.
type watch struct {
	mount     string // "": the workspace
	path      vpath.Path
	recursive bool
	wake      chan struct{} // has room for one

	mu      sync.Mutex
	pending map[vpath.Path]api.ChangeKind
	bytes   int // of the pending paths
	lost    bool
}

// note adds a change to what is pending, if it is watched. What becomes of a
// directory above the watched path becomes of that, too.
func (w *watch) note(p vpath.Path, kind api.ChangeKind) {
	switch at := p.Plain(); {
	case at == w.path:
	case w.path.Within(at):
		if kind == api.Modified {
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
func (w *watch) mergeLocked(p vpath.Path, old, kind api.ChangeKind) {
	switch {
	case old == api.Created && kind == api.Deleted:
		delete(w.pending, p)
		w.bytes -= len(p)
	case old == api.Created:
	case old == api.Deleted && kind == api.Created:
		w.pending[p] = api.Modified
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
func (w *watch) take(p *policy.Policy) api.Watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := api.Watched{Lost: w.lost}
	w.lost = false
	paths := make([]vpath.Path, 0, len(w.pending))
	for path := range w.pending {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	room := api.MaxEffectBytes
	for _, path := range paths {
		if len(told.Changes) == api.MaxEffects || room < 0 {
			w.rouse()
			break
		}
		if p.Decide(path).Permission != policy.None {
			told.Changes = append(told.Changes, api.Changed{Mount: w.mount, Path: path.Text(), Kind: w.pending[path]})
			room -= len(path)
		}
		delete(w.pending, path)
		w.bytes -= len(path)
	}
	return told
}

// untilClientLeaves returns a context that ends when the client at c leaves, of which nothing more
// is expected.
func untilClientLeaves(ctx context.Context, c api.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		var nothing api.Request
		unasked, _ := c.Receive(&nothing) // it returns when the client leaves
		api.CloseAll(unasked...)
		cancel()
		c.Close()
	}()
	return ctx, cancel
}

// handleWatch tells the client at c what changes in the view until it leaves. It
// is no reason to stay.
func (s *supervisor) handleWatch(ctx context.Context, c api.Conn, r api.WatchRequest) {
	s.release()
	defer s.holdAgain()
	path, err := vpath.Parse(string(r.Path))
	w := &watch{mount: r.Mount, path: path, recursive: r.Recursive, wake: make(chan struct{}, 1), pending: map[vpath.Path]api.ChangeKind{}}
	view, viewErr := s.viewOf(r.Mount)
	if err = cmp.Or(err, viewErr); err == nil {
		err = s.watches.add(w)
	}
	if err != nil {
		s.warn("control: refusal not delivered", c.Send(api.Reply{Error: api.FailureOf(err)}))
		return
	}
	defer s.watches.remove(w)
	ctx, cancel := untilClientLeaves(ctx, c)
	defer cancel()
	err = c.Send(api.Reply{OK: true})
	for err == nil {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		case <-s.stopping:
			return
		}
		told := w.take(view.Policy())
		if len(told.Changes) > 0 || told.Lost {
			err = c.Send(api.Reply{Watched: &told})
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
