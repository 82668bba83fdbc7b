package fusefs

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Denial is a refusal by policy. A refusal by a file's own mode is not a Denial.
type Denial struct {
	Path       vpath.Path
	Operation  string            // the system call, as far as it is known
	Permission policy.Permission // the permission at the path
	Rule       int               // index in Policy.Rules, or policy.NoRule
	Reason     string
	Locked     bool   // policy.Decision.Locked
	PID        int    // of the process, in the mounter's pid namespace
	Program    string // its command name, 15 bytes at most (proc(5))
	Count      int    // how many equal refusals this Denial represents
	Owner      any    // the result of Options.Owner for the process
}

// various is the Operation of a Denial that represents refusals that are too many, or at
// paths that are too long, to report each.
const various = "various"

const (
	// repeatTime is the default of Options.RepeatTime.
	repeatTime = 5 * time.Second
	// maxKinds is how many different refusals are counted within Options.RepeatTime.
	maxKinds = 1024
	// maxDeniedPath is the longest path that is reported, in bytes (PATH_MAX,
	// linux/limits.h). A program can use far longer ones.
	maxDeniedPath = 4096
)

// denied is what a handler knows of a refusal.
type denied struct {
	path      vpath.Path
	operation string // "" takes the caller's system call
	d         policy.Decision
	caller    *fuse.Caller
}

// denials counts equal refusals.
type denials struct {
	mu     sync.Mutex
	kinds  map[denialKind]*denialCount
	missed map[any]int   // by owner
	begun  chan struct{} // has a token if counts began since runDenials looked
}

func (q *denials) init() {
	q.kinds, q.begun = map[denialKind]*denialCount{}, make(chan struct{}, 1)
}

func (q *denials) isEmptyLocked() bool { return len(q.kinds)+len(q.missed) == 0 }

func (q *denials) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isEmptyLocked()
}

type denialKind struct {
	path      vpath.Path
	operation string
	pid       uint32
	owner     any
}

type denialCount struct {
	first  time.Time
	denial Denial
	more   int
}

// deny reports a refusal. The caller must still wait for the reply, because deny reads its
// system call.
func (fs *FS) deny(d denied) {
	if fs.o.OnDenial == nil {
		return
	}
	d.path = d.path.Plain()
	k := denialKind{d.path, d.operation, d.caller.Pid, fs.ownerOf(d.caller.Pid)}
	q := &fs.denials
	q.mu.Lock()
	if q.isEmptyLocked() {
		select {
		case q.begun <- struct{}{}:
		default:
		}
	}
	c := q.kinds[k]
	switch {
	case c != nil:
		c.more++
	case len(q.kinds) >= maxKinds || len(d.path) > maxDeniedPath:
		if q.missed == nil {
			q.missed = map[any]int{}
		}
		q.missed[k.owner]++
	default:
		c = &denialCount{first: time.Now()}
		q.kinds[k] = c
		q.mu.Unlock()
		fs.describe(&d, c, k.owner)
		return
	}
	q.mu.Unlock()
}

// ownerOf returns the owner of a thread, see Options.Owner.
func (fs *FS) ownerOf(tid uint32) any {
	if fs.o.Owner == nil {
		return nil
	}
	return fs.o.Owner(int(tid))
}

// describe completes and reports the first refusal of its kind while the caller waits.
func (fs *FS) describe(d *denied, c *denialCount, owner any) {
	if d.operation == "" {
		d.operation = currentCall(d.caller.Pid).name()
	}
	pid, program := process(d.caller.Pid)
	first := Denial{
		Path: d.path, Operation: d.operation, Permission: d.d.ForDir(), Rule: d.d.Rule, Reason: d.d.Reason, Locked: d.d.Locked,
		PID: pid, Program: program, Count: 1, Owner: owner,
	}
	fs.denials.mu.Lock()
	c.denial = first
	fs.denials.mu.Unlock()
	fs.o.OnDenial(first)
}

// flush returns and removes the counts that are due.
func (q *denials) flush(due func(owner any, first time.Time) bool) []Denial {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []Denial
	for k, c := range q.kinds {
		if c.denial.Count == 0 || !due(k.owner, c.first) {
			continue // describe has not finished, or not due yet
		}
		if c.more > 0 {
			again := c.denial
			again.Count = c.more
			all = append(all, again)
		}
		delete(q.kinds, k)
	}
	for owner, n := range q.missed {
		if !due(owner, time.Time{}) {
			continue
		}
		all = append(all, Denial{
			Path: vpath.Root, Operation: various, Rule: policy.NoRule,
			Reason: "too many refusals, or paths too long, to report each", Count: n, Owner: owner,
		})
		delete(q.missed, owner)
	}
	return all
}

// denyNode reports a refusal for a node.
func (fs *FS) denyNode(n *node, operation string, c *fuse.Caller) {
	if p, d, ok := fs.decisionOn(n); ok {
		fs.deny(denied{path: p, operation: operation, d: d, caller: c})
	}
}

// decisionOn returns the decision for n's strictest name.
func (fs *FS) decisionOn(n *node) (vpath.Path, policy.Decision, bool) {
	x := fs.nodes.extra(n)
	p, ok := fs.nodes.path(n)
	if !ok {
		p = x.last
	}
	if p == "" {
		return "", policy.Decision{}, false
	}
	r := fs.rules.Load()
	d := r.Decide(p)
	for _, l := range x.links {
		if dir, ok := fs.nodes.path(l.parent); ok {
			if other := r.Decide(dir.Child(l.name)); other.Permission < d.Permission {
				p, d = dir.Child(l.name), other
			}
		}
	}
	for _, name := range r.strictest(x.file) {
		if other := r.Decide(name); other.Permission < d.Permission {
			p, d = name, other
		}
	}
	return p, d, true
}

// suspect is called when the kernel asks for attributes, which it also does before it
// refuses by the mode bits. It is a denial if the caller's system call needs bits that the
// file has and that the policy removed. It reports it, or returns it with what is to be asked.
func (fs *FS) suspect(n *node, info *layer.Info, c *fuse.Caller, shown uint32) (*denied, *Question) {
	if fs.o.OnDenial == nil || c.Pid == 0 {
		return nil, nil
	}
	own := maskMode(info.Mode, policy.Write, true)
	if own&0o777 == shown&0o777 {
		return nil, nil
	}
	call := currentCall(c.Pid)
	need := call.needs(n.isDir())
	if need == 0 || !fs.grants(own, c, need) || fs.grants(shown, c, need) {
		return nil, nil
	}
	p, d, ok := fs.decisionOn(n)
	if !ok {
		return nil, nil
	}
	refusal := denied{path: p, operation: call.name(), d: d, caller: c}
	if !n.isDir() {
		if q := fs.question(&refusal, need, call); q != nil {
			return &refusal, q
		}
	}
	fs.deny(refusal)
	return nil, nil
}

// grants reports whether the mode bits give the caller the rights need (4 read, 2 write, 1
// execute).
func (fs *FS) grants(mode uint32, c *fuse.Caller, need uint32) bool {
	switch {
	case c.Uid == fs.o.UID:
		mode >>= 6
	case c.Gid == fs.o.GID:
		mode >>= 3
	}
	return mode&need == need
}

// process returns the process that the thread tid belongs to, and its name.
func process(tid uint32) (pid int, program string) {
	program = programOf(tid)
	status, err := os.ReadFile("/proc/" + strconv.Itoa(int(tid)) + "/status")
	if err != nil {
		return int(tid), program
	}
	if pid, err = strconv.Atoi(statusField(status, "Tgid")); err != nil {
		return int(tid), program
	}
	return pid, program
}

// programOf returns the command name of a thread (proc_pid_comm(5)), "" if it has ended.
func programOf(tid uint32) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(int(tid)) + "/comm")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSuffix(b, []byte{'\n'}))
}

// statusField returns the field of a process's status (proc_pid_status(5)), "" if there is none.
func statusField(status []byte, name string) string {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name+":\t"))
	line, _, _ := bytes.Cut(rest, []byte{'\n'})
	return string(line)
}
