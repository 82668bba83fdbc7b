package fusefs

import (
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Question is a refusal that is not final: of a file that the view shows, by a system call that
// opens, executes or truncates it.
type Question struct {
	Denial
	Need policy.Permission // what would have allowed the operation
}

// Verdict is the answer to a Question.
type Verdict int

// The verdicts.
const (
	Refuse Verdict = iota
	// AllowOnce lets the opens of the next moment succeed, whoever makes them. What they opened
	// stays usable until the policy of the file changes, or the kernel forgets it.
	AllowOnce
	// Reconsider follows the policy, which has changed.
	Reconsider
	// Withdrawn is for a caller that no longer waits.
	Withdrawn
)

// onceTime is how long opens succeed after AllowOnce: those that waited for the same answer, and
// another attempt of a program that opens a file twice.
const onceTime = time.Second

// asked are the calls for which a Question is put. Others that the kernel refuses, such as
// access(2), only look.
func (c *call) isAsked() bool {
	switch accesses[c.number].name {
	case "open", "execve", "truncate":
		return c.known
	}
	return false
}

// once has the files of which opens were allowed once, and those that are asked about.
type once struct {
	active  atomic.Int32 // how many opens were allowed
	mu      sync.Mutex
	nodes   map[*node]onceGrant
	waiting map[*node]int        // callers
	changes map[change]time.Time // what was allowed to be done, and until when
}

type onceGrant struct {
	permission policy.Permission
	under      policy.Permission // what the policy said then
	opens      time.Time         // until when the file may be opened
}

// allow lets n be opened for a moment.
func (o *once) allow(n *node, p, under policy.Permission) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.nodes == nil {
		o.nodes = map[*node]onceGrant{}
	}
	g := o.nodes[n]
	o.nodes[n] = onceGrant{permission: max(p, g.permission), under: under, opens: time.Now().Add(onceTime)}
	o.active.Store(int32(len(o.nodes)))
}

// of returns the permission of what was opened of n, and whether n may still be opened so.
func (o *once) of(n *node) (p policy.Permission, opens bool) {
	if o.active.Load() == 0 {
		return policy.None, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.nodes[n]
	return g.permission, time.Now().Before(g.opens)
}

// begin counts a caller that waits for an answer about n, until end is called.
func (o *once) begin(n *node) (end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting == nil {
		o.waiting = map[*node]int{}
	}
	o.waiting[n]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.waiting[n]--; o.waiting[n] == 0 {
			delete(o.waiting, n)
		}
	}
}

// brings reports whether an answer about n, for which somebody waits, tells the kernel that n has a
// wider permission now. The kernel would not take the attributes that come with the answer if it
// were told meanwhile that those that it has are outdated.
func (o *once) brings(n *node, now, was policy.Permission) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return now > was && o.waiting[n] > 0
}

// drop forgets n, or with changed only if the policy says something else of it than before.
func (o *once) drop(n *node, changed bool, now policy.Permission) {
	if o.active.Load() == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if g, is := o.nodes[n]; is && (!changed || g.under != now) {
		delete(o.nodes, n)
		o.active.Store(int32(len(o.nodes)))
	}
}

// usable returns what may be done with a descriptor of n: the permission, or what was allowed when
// it was opened.
func (fs *FS) usable(n *node) policy.Permission {
	p := fs.permission(n)
	if fs.once.active.Load() == 0 {
		return p
	}
	once, _ := fs.once.of(n)
	return max(p, once)
}

// question returns what is to be asked about a refusal; nil if that is final.
func (fs *FS) question(d *denied, need uint32, call *call) *Question {
	if fs.o.Ask == nil || !call.isAsked() || d.path.Plain() == policy.ProjectFile || !d.d.Transform.IsZero() || d.d.Locked {
		return nil
	}
	q := &Question{Need: policy.Read}
	if need&2 != 0 {
		q.Need = policy.Write
	}
	if d.d.Permission < policy.View || d.d.Permission >= q.Need || len(d.path) > maxDeniedPath {
		return nil // of none nothing is known, and what is refused otherwise no answer permits
	}
	return q
}

// put asks, while the caller waits, and describes n again after the answer.
func (fs *FS) put(cancel <-chan struct{}, n *node, d *denied, q *Question, out *fuse.AttrOut) fuse.Status {
	owner := fs.ownerOf(d.caller.Pid)
	pid, program := process(d.caller.Pid)
	q.Denial = Denial{
		Path: d.path.Plain(), Operation: d.operation, Permission: d.d.Permission, Rule: d.d.Rule, Reason: d.d.Reason,
		PID: pid, Program: program, Count: 1, Owner: owner,
	}
	fs.conn.BeginBlocking()
	defer fs.once.begin(n)()
	left, end := leaving(cancel, d.caller.Pid)
	verdict := fs.o.Ask(*q, left)
	end()
	if verdict == Withdrawn {
		fs.notify.inode(n.id) // the policy may have changed meanwhile
		return fuse.EINTR
	}
	if verdict == Refuse && fs.permission(n) < q.Need {
		fs.deny(*d)
	}
	if verdict == AllowOnce {
		fs.once.allow(n, q.Need, fs.permission(n))
	}
	fs.moves.RLock()
	defer fs.moves.RUnlock()
	info, st := fs.stat(n)
	if st.Ok() {
		fs.fillAttr(n, &info, out)
	}
	return st
}

// widen shows the file as its opens are allowed for a moment. The kernel asks again before it
// checks the next access.
func (fs *FS) widen(n *node, info *layer.Info, out *fuse.AttrOut) {
	p, opens := fs.once.of(n)
	if !opens || n.isDir() || p <= fs.permission(n) {
		return
	}
	out.Mode = maskMode(info.Mode, p, false)
	out.AttrValid, out.AttrValidNsec = 0, 0
}

// leavingPause is how often a caller is looked at that got a signal.
const leavingPause = 50 * time.Millisecond

// leaving returns a channel that is closed when the caller tid no longer waits for the reply to
// its request: cancel says that it got a signal, of which only one that ends it, or by which a
// person interrupts it, counts.
func leaving(cancel <-chan struct{}, tid uint32) (left <-chan struct{}, end func()) {
	gone, done := make(chan struct{}), make(chan struct{})
	go func() {
		select {
		case <-cancel:
		case <-done:
			return
		}
		for !isLeaving(tid) {
			select {
			case <-time.After(leavingPause):
			case <-done:
				return
			}
		}
		close(gone)
	}()
	return gone, func() { close(done) }
}

// ends are signals by which people end programs, also those that catch them.
const ends = 1<<(unix.SIGINT-1) | 1<<(unix.SIGTERM-1) | 1<<(unix.SIGHUP-1) | 1<<(unix.SIGQUIT-1)

// stops are signals that do not end a program that does not catch them.
const stops = 1<<(unix.SIGSTOP-1) | 1<<(unix.SIGTSTP-1) | 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1) |
	1<<(unix.SIGCONT-1) | 1<<(unix.SIGCHLD-1) | 1<<(unix.SIGWINCH-1) | 1<<(unix.SIGURG-1)

// isLeaving reports whether a signal waits for the thread that ends it, or is one of ends. A
// thread that is gone has left.
func isLeaving(tid uint32) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(int(tid)) + "/status")
	if err != nil {
		return true
	}
	set := func(name string) uint64 {
		mask, _ := strconv.ParseUint(statusField(text, name), 16, 64) // a thread that ends has none
		return mask
	}
	waiting := (set("SigPnd") | set("ShdPnd")) &^ set("SigBlk") &^ set("SigIgn")
	return waiting&^set("SigCgt")&^stops != 0 || waiting&ends != 0
}
