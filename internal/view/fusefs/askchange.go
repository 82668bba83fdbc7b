package fusefs

import (
	"slices"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// A refusal to change a name, or the attributes of a file, cannot wait in its own request: the
// kernel holds locks of the directory or the file meanwhile, and everybody who needs them would
// wait too, in a sleep that no signal ends. So that request is answered with ESTALE, and the
// attributes of the directory are made invalid. The kernel then drops its locks and walks the path
// once more (retry_estale in fs/namei.c), and on that walk it asks for the attributes of the
// directory (may_lookup), without any lock. The reply to that waits for the answer. Then the
// request comes again.

// retries has the system calls that were sent to walk their path once more.
type retries struct {
	mu sync.Mutex
	of map[uint32]*retry // by thread
}

// retry is such a call. Its paths are those of its requests: what a process wrote into its memory
// is not looked at.
type retry struct {
	call     call
	caller   fuse.Caller
	parent   *node // the directory where the question waits
	refusals []denied

	since   time.Time // when it was sent to walk again, or was answered
	asked   bool      // the walk has reached parent
	waiting bool      // for the answer
	denied  bool      // the answer was reported as a refusal
	once    []change  // what was allowed once
}

const (
	// maxRetries bounds the calls that are remembered. One of which no request comes again, because
	// its thread was killed, counts for retryTime, and stays until the room is needed.
	maxRetries = 256
	retryTime  = 10 * time.Second
)

// isChange reports whether the call changes names in a directory, of which it then needs the
// permission to write.
func (c *call) isChange() bool {
	switch a := accesses[c.number]; a.name {
	case "open":
		return c.known && c.creates()
	case "mkdir", "mknod", "symlink", "unlink", "rmdir", "rename":
		return c.known
	}
	return false
}

// isRepeated reports whether the kernel repeats the call after ESTALE: it gives a path, and is not
// one of those that return the error, such as bind(2) and link(2).
func (c *call) isRepeated() bool {
	switch c.name() {
	case "chmod", "chown":
		return true
	case "utimensat":
		return c.number != unix.SYS_UTIMENSAT || c.args[1] != 0 // without a path it is futimens(3)
	}
	return c.isChange()
}

// isShut reports whether the policy lets nothing be changed in the directory. Without Ask the mode
// bits say so, and the kernel refuses.
func (fs *FS) isShut(n *node) bool { return fs.o.Ask != nil && !fs.childWritable(n) }

// isAskable reports whether an answer may permit what d refuses: a change at a path that the view
// shows, and that no other sandbox has locked.
func (d *denied) isAskable() bool {
	return d.d.Permission >= policy.View && d.d.Permission < policy.Write && d.d.Transform.IsZero() && !d.d.Locked &&
		d.path.Plain() != policy.ProjectFile && len(d.path) <= maxDeniedPath
}

// refuse returns the reply to a request that the policy refuses, at a name in the directory parent:
// OK if it was allowed once. The request may come again, after somebody was asked.
func (fs *FS) refuse(parent *node, d denied) fuse.Status {
	if d.operation == "rename" { // see askMove
		if fs.once.mayChange(&d) {
			return fuse.OK
		}
		fs.deny(d)
		return refused
	}
	return fs.refuseAll(parent, []denied{d})
}

// refuseAll is refuse for a request that needs to change several names.
func (fs *FS) refuseAll(parent *node, all []denied) fuse.Status {
	isFinal := slices.ContainsFunc(all, func(d denied) bool { return !d.isAskable() })
	if fs.o.Ask == nil || isFinal {
		return fs.denyAll(all)
	}
	call := currentCall(all[0].caller.Pid)
	if !call.isRepeated() {
		return fs.denyAll(all)
	}
	before := fs.retries.take(all[0].caller.Pid, call)
	if before != nil {
		for _, c := range before.once {
			fs.once.allowChange(c)
		}
	}
	switch {
	case !slices.ContainsFunc(all, func(d denied) bool { return !fs.once.mayChange(&d) }):
		return fuse.OK
	case before != nil && before.denied:
		return refused
	case before != nil || !fs.retries.add(parent, call, all):
		return fs.denyAll(all)
	}
	fs.conn.InodeNotify(parent.id, -1, 0) // the attributes alone: that waits for nobody
	return fuse.Status(unix.ESTALE)
}

func (fs *FS) denyAll(all []denied) fuse.Status {
	for _, d := range all {
		fs.deny(d)
	}
	return refused
}

// askMove is refuse for both names of a rename. Directories are not asked about: each entry below
// would have to be.
func (fs *FS) askMove(in *fuse.RenameIn, oldName, newName string) fuse.Status {
	if fs.o.Ask == nil || in.Flags&unix.RENAME_EXCHANGE != 0 {
		return fuse.OK
	}
	from, st := fs.targetAt(in.NodeId, oldName)
	to, st2 := fs.targetAt(in.Newdir, newName)
	if !st.Ok() || !st2.Ok() {
		return fuse.OK // Rename meets it again
	}
	if n := fs.nodes.child(from.parent, from.name); n == nil || n.isDir() {
		return fuse.OK
	}
	var all []denied
	for _, s := range []*target{&from, &to} {
		if s.d.Permission == policy.Write && !s.shut || s.d.Own {
			continue
		}
		d := denied{path: s.path, operation: "rename", d: s.d, caller: &in.Caller}
		if !d.isAskable() || s == &from && s.d.Permission < policy.Read {
			return fuse.OK // a file that may not be read stays where that holds
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return fuse.OK
	}
	return fs.refuseAll(from.parent, all)
}

// maySetAttr reports whether the attributes of n may be changed, because the policy or an answer
// says so.
func (fs *FS) maySetAttr(in *fuse.SetAttrIn) (*node, fuse.Status) {
	n := fs.nodes.get(in.NodeId)
	if _, sets := in.GetSize(); n == nil || fs.o.Ask == nil || sets || fs.usable(n) == policy.Write {
		return fs.allowed(in.NodeId, policy.Write, "setattr", &in.Caller)
	}
	fs.nodes.mu.RLock()
	parent := n.parent
	fs.nodes.mu.RUnlock()
	p, d, ok := fs.decisionOn(n)
	if !ok || parent == nil {
		return fs.allowed(in.NodeId, policy.Write, "setattr", &in.Caller)
	}
	return n, fs.refuse(parent, denied{path: p, operation: "setattr", d: d, caller: &in.Caller})
}

// add remembers a call. It reports false if there is no room.
func (r *retries) add(parent *node, call *call, all []denied) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[uint32]*retry{}
	}
	if len(r.of) >= maxRetries {
		for tid, old := range r.of {
			if old.isOver() {
				delete(r.of, tid)
			}
		}
	}
	if len(r.of) >= maxRetries {
		return false
	}
	one := &retry{call: *call, caller: *all[0].caller, parent: parent, refusals: all, since: time.Now()}
	for i := range all {
		all[i].caller = &one.caller
	}
	r.of[one.caller.Pid] = one
	return true
}

// take returns and forgets the call of a thread; nil if it is another one, or was not remembered.
func (r *retries) take(tid uint32, call *call) *retry {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[tid]
	delete(r.of, tid)
	if one == nil || one.call != *call || one.isOver() {
		return nil
	}
	return one
}

func (r *retry) isOver() bool { return !r.waiting && time.Since(r.since) > retryTime }

// isAwaited reports whether the walk of a thread is to ask for the attributes of the directory n.
// No reply may make them valid until then, whoever gets it.
func (fs *FS) isAwaited(n *node) bool {
	if fs.o.Ask == nil || !n.isDir() {
		return false
	}
	r := &fs.retries
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.of {
		if one.parent == n && !one.asked && !one.isOver() {
			return true
		}
	}
	return false
}

// due returns the call of a thread if its walk has reached the directory n.
func (r *retries) due(tid uint32, n *node) *retry {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[tid]
	if one == nil || one.asked || one.parent != n || one.call != *currentCall(tid) {
		return nil
	}
	one.asked, one.waiting = true, true
	return one
}

// answered ends the wait of a call.
func (r *retries) answered(one *retry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one.waiting, one.since = false, time.Now()
}

// askFor asks about the refusals of a call, one after the other, while it waits.
func (fs *FS) askFor(cancel <-chan struct{}, r *retry) fuse.Status {
	defer fs.retries.answered(r)
	owner := fs.ownerOf(r.caller.Pid)
	pid, program := process(r.caller.Pid)
	fs.conn.BeginBlocking()
	left, end := leaving(cancel, r.caller.Pid)
	defer end()
	for _, d := range r.refusals {
		q := Question{Need: policy.Write, Denial: Denial{
			Path: d.path.Plain(), Operation: d.operation, Permission: d.d.Permission, Rule: d.d.Rule, Reason: d.d.Reason,
			PID: pid, Program: program, Count: 1, Owner: owner,
		}}
		switch fs.o.Ask(q, left) {
		case Withdrawn:
			return fuse.EINTR
		case AllowOnce:
			r.once = append(r.once, d.change())
			fs.once.allowChange(d.change())
		case Reconsider:
		default:
			fs.deny(d)
			r.denied = true
			return fuse.OK
		}
	}
	return fuse.OK
}

// change is an operation at a path, of which somebody was asked.
type change struct {
	path      vpath.Path
	operation string
}

func (d *denied) change() change { return change{d.path, d.operation} }

// allowChange lets c be done for a moment.
func (o *once) allowChange(c change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for old, until := range o.changes {
		if !now.Before(until) {
			delete(o.changes, old)
		}
	}
	if o.changes == nil {
		o.changes = map[change]time.Time{}
	}
	o.changes[c] = now.Add(onceTime)
}

// mayChange reports whether what d refuses was allowed a moment ago.
func (o *once) mayChange(d *denied) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return d.isAskable() && time.Now().Before(o.changes[d.change()])
}
