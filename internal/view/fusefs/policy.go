package fusefs

import (
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// rules is the policy in force. Epochs tell cached verdicts of another policy,
// or of another place in the tree, from current ones.
type rules struct {
	*policy.Policy
	epoch  uint32
	strict strictNames
}

// strictNames holds, of each file of the delta whose names differ in class, the
// name of the strictest: the kernel need not know that name for it to count.
// nil: it could not be found out, and no file of several names may be read.
type strictNames map[fileKey]vpath.Path

// A verdict is epoch<<8 | traversable<<7 | permission. Epoch 0 is never in
// force.
const (
	verdictTraversable = 1 << 7
	verdictEpoch       = 8
	epochMask          = 1<<24 - 1
)

// permission returns what the policy permits on n now: the strictest of what
// it says of n's names, and for a node without a name of the last it had.
func (fs *FS) permission(n *node) policy.Permission {
	r := fs.rules.Load()
	v := n.verdict.Load()
	if v>>verdictEpoch != r.epoch {
		v = r.epoch<<verdictEpoch | fs.effectivePermission(n, r)
		n.verdict.Store(v)
	}
	p := policy.Permission(v & (verdictTraversable - 1))
	if p == policy.None && n.isDir() && v&verdictTraversable != 0 {
		return policy.View
	}
	return p
}

// rule keeps what p was just found to say of the only name of n.
func (fs *FS) rule(n *node, p *policy.Policy, d policy.Decision) {
	if r := fs.rules.Load(); r.Policy == p && !n.is(flagExtra|flagNameless) {
		n.verdict.Store(r.epoch<<verdictEpoch | verdictOf(d))
	}
}

func verdictOf(d policy.Decision) uint32 {
	v := uint32(d.Permission)
	if d.Traversable {
		v |= verdictTraversable
	}
	return v
}

func (fs *FS) effectivePermission(n *node, r *rules) uint32 {
	fs.nodes.mu.RLock()
	p, named := fs.nodes.pathLocked(n)
	paths := []vpath.Path{p}
	worst := uint32(policy.Write) // what never had a name was made by whoever holds it
	if n.is(flagExtra) {
		if x := fs.nodes.extras[n]; x != nil {
			for _, l := range x.links {
				if p, ok := fs.nodes.pathLocked(l.parent); ok {
					paths = append(paths, p.Child(l.name))
				}
			}
			if !named {
				paths[0] = x.last
			}
			paths = append(paths, r.strictest(x.file)...)
			if r.strict == nil && x.file != (fileKey{}) {
				worst = uint32(policy.View)
			}
		}
	} else if !named {
		paths[0] = ""
	}
	fs.nodes.mu.RUnlock()
	for _, p := range paths {
		if p == "" {
			continue
		}
		if v := verdictOf(r.Decide(p)); v&^verdictTraversable <= worst&^verdictTraversable {
			worst = v
		}
	}
	return worst
}

// strictest returns the name of the file behind key that has the strictest
// class, if that is another than its other names have.
func (r *rules) strictest(key fileKey) []vpath.Path {
	if p, ok := r.strict[key]; ok {
		return []vpath.Path{p}
	}
	return nil
}

// findStrict looks for the files of the delta whose names p puts in different
// classes. Links never cross a class, so that p must differ from what was in
// force when they were made.
func (fs *FS) findStrict(p *policy.Policy) (strictNames, error) {
	linked, err := fs.o.Layer.Linked()
	if err != nil {
		return nil, err
	}
	strict := strictNames{}
	for key, names := range linked {
		worst := names[0]
		differ := false
		for _, name := range names[1:] {
			is, was := p.Decide(name).Permission, p.Decide(worst).Permission
			differ = differ || is != was
			if is < was {
				worst = name
			}
		}
		if differ {
			strict[key] = worst
		}
	}
	return strict, nil
}

// decide returns what the policy says of name in the directory parent at p.
func (fs *FS) decide(parent *node, p vpath.Path, name string) policy.Decision {
	return fs.stateOf(parent, p).DecideChild(name)
}

// stateOf returns the policy's evaluation at a directory, kept there until the
// policy or the directory's place changes.
func (fs *FS) stateOf(parent *node, p vpath.Path) policy.State {
	r := fs.rules.Load()
	d := parent.dir
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stateLocked(r, p)
}

func (d *dir) stateLocked(r *rules, p vpath.Path) policy.State {
	if d.epoch != r.epoch {
		d.state, d.epoch = r.At(p), r.epoch
	}
	return d.state
}

// visible reports whether the decision shows an entry whose mode is given.
func visible(d policy.Decision, mode uint32) bool {
	return d.Permission != policy.None || d.Traversable && isDir(mode)
}

// nextEpoch puts p in force, nil: keeps what is, and drops every verdict.
func (fs *FS) nextEpoch(p *policy.Policy, strict strictNames) {
	fs.swap.Lock()
	defer fs.swap.Unlock()
	old := fs.rules.Load()
	if p == nil {
		p, strict = old.Policy, old.strict
	}
	epoch := (old.epoch + 1) & epochMask
	if epoch == 0 {
		epoch = 1
	}
	fs.rules.Store(&rules{p, epoch, strict})
}

// Policy returns what is in force.
func (fs *FS) Policy() *policy.Policy { return fs.rules.Load().Policy }

// SetPolicy puts p in force for every operation that begins from now on and
// returns once the kernel has forgotten what the old policy allowed. Contents
// already copied out of the view, by read(2) or otherwise, are not called
// back; a mapping of a file that is not readable any more gets SIGBUS. It must
// not be called from OnDenial or OnChange.
func (fs *FS) SetPolicy(p *policy.Policy) {
	fs.prefetch.gate.Lock() // what is being stored was judged by the old one
	old := fs.rules.Load().Policy
	fs.moves.Lock() // no link is made under the old one that findStrict misses
	strict, err := fs.findStrict(p)
	if err != nil {
		fs.log.Error("look for links", "err", err)
	}
	fs.nextEpoch(p, strict)
	fs.moves.Unlock()
	fs.prefetch.gate.Unlock()
	for _, n := range fs.nodes.all() {
		fs.revoke(n, old)
	}
	fs.notify.barrier()
}

// revoke invalidates what the kernel has of a node whose decision changed.
func (fs *FS) revoke(n *node, old *policy.Policy) {
	fs.nodes.mu.RLock()
	p, named := fs.nodes.pathLocked(n)
	parent, name := n.parent, n.name
	fs.nodes.mu.RUnlock()
	if n.isDir() {
		n.dir.outdate()
	}
	now := fs.permission(n)
	if named && parent != nil && now == policy.None && old.Decide(p).ForDir() != policy.None {
		fs.notify.entry(parent.id, name)
	}
	if n.isDir() || n.is(flagExtra|flagNameless) || old.Decide(p).Permission != now {
		fs.notify.inode(n.id)
	}
}
