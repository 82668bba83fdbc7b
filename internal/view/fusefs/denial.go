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

// Denial is a refusal by policy. What a file's own mode refuses is none.
type Denial struct {
	Path       vpath.Path
	Operation  string            // what was tried: the system call, as far as it can be told
	Permission policy.Permission // what the policy gives there
	Rule       int               // index in Policy.Rules, or policy.NoRule
	Reason     string
	PID        int    // of the process, in the mounter's pid namespace
	Program    string // its command name, 15 bytes at most (proc(5))
	Count      int    // how many refusals alike this one stands for
	Owner      any    // what Options.Owner said of the process
}

// various is the Operation of a Denial that stands for those that are too many,
// or at paths too long, to tell each.
const various = "various"

const (
	// repeatTime is for how long refusals alike are one.
	repeatTime = 5 * time.Second
	// maxKinds bounds how many different refusals that time may hold.
	maxKinds = 1024
	// maxDeniedPath is the longest path that is told, in bytes (PATH_MAX,
	// linux/limits.h): a program inside can ask for far longer ones.
	maxDeniedPath = 4096
)

// denied is a refusal as a handler knows it.
type denied struct {
	path      vpath.Path
	operation string // "" is read from the caller's system call
	d         policy.Decision
	caller    *fuse.Caller
}

// denials counts refusals alike.
type denials struct {
	mu     sync.Mutex
	kinds  map[denialKind]*denialCount
	missed map[any]int // by owner
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

// deny reports a refusal. It must be called while the caller waits for the
// answer, since it looks at what it is doing.
func (fs *FS) deny(d denied) {
	if fs.o.OnDenial == nil {
		return
	}
	d.path = d.path.Plain()
	k := denialKind{d.path, d.operation, d.caller.Pid, fs.ownerOf(d.caller.Pid)}
	q := &fs.denials
	q.mu.Lock()
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

// ownerOf says whose a process is.
func (fs *FS) ownerOf(tid uint32) any {
	if fs.o.Owner == nil {
		return nil
	}
	return fs.o.Owner(int(tid))
}

// describe fills in the first of its kind and tells of it while the caller
// waits.
func (fs *FS) describe(d *denied, c *denialCount, owner any) {
	if d.operation == "" {
		d.operation = currentCall(d.caller.Pid).name()
	}
	pid, program := process(d.caller.Pid)
	first := Denial{
		Path: d.path, Operation: d.operation, Permission: d.d.ForDir(), Rule: d.d.Rule, Reason: d.d.Reason,
		PID: pid, Program: program, Count: 1, Owner: owner,
	}
	fs.denials.mu.Lock()
	c.denial = first
	fs.denials.mu.Unlock()
	fs.o.OnDenial(first)
}

// flush returns what was counted of those that are due, and forgets it.
func (q *denials) flush(due func(owner any, first time.Time) bool) []Denial {
	q.mu.Lock()
	defer q.mu.Unlock()
	var all []Denial
	for k, c := range q.kinds {
		if c.denial.Count == 0 || !due(k.owner, c.first) {
			continue // still being described, or not yet
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
			Reason: "too many refusals to tell each, or at paths too long", Count: n, Owner: owner,
		})
		delete(q.missed, owner)
	}
	return all
}

// denyNode reports a refusal where only the node is known.
func (fs *FS) denyNode(n *node, operation string, c *fuse.Caller) {
	if p, d, ok := fs.decisionOn(n); ok {
		fs.deny(denied{path: p, operation: operation, d: d, caller: c})
	}
}

// decisionOn returns what the policy says of n's strictest name.
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

// suspect is called when the kernel asks for attributes. It does so a second
// time before it refuses by the mode bits; then the caller's system call needs
// bits that the file itself has and the policy took away.
func (fs *FS) suspect(n *node, info *layer.Info, c *fuse.Caller, shown uint32) {
	if fs.o.OnDenial == nil || c.Pid == 0 {
		return
	}
	own := maskMode(info.Mode, policy.Write, true)
	if own&0o777 == shown&0o777 {
		return
	}
	call := currentCall(c.Pid)
	need := call.needs(n.isDir())
	if need == 0 || !fs.grants(own, c, need) || fs.grants(shown, c, need) {
		return
	}
	p, d, ok := fs.decisionOn(n)
	if !ok {
		return
	}
	fs.deny(denied{path: p, operation: call.name(), d: d, caller: c})
}

// grants reports whether the mode bits give the caller what it needs (4 read,
// 2 write, 1 execute).
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
	dir := "/proc/" + strconv.Itoa(int(tid))
	if b, err := os.ReadFile(dir + "/comm"); err == nil {
		program = string(bytes.TrimSuffix(b, []byte{'\n'}))
	}
	b, err := os.ReadFile(dir + "/status")
	if err != nil {
		return int(tid), program
	}
	_, rest, _ := bytes.Cut(b, []byte("\nTgid:\t"))
	line, _, _ := bytes.Cut(rest, []byte{'\n'})
	if pid, err = strconv.Atoi(string(line)); err != nil {
		return int(tid), program
	}
	return pid, program
}
