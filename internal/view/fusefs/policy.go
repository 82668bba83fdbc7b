package fusefs

import (
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/shown"
)

// rules is the policy in force. The epoch distinguishes current cached verdicts from those
// of an earlier policy, or of an earlier path.
type rules struct {
	*policy.Policy
	epoch  uint32
	strict strictNames
}

// strictNames has, for each file of the delta with names of different classes, the name of
// the strictest class. That name counts even if the kernel does not know it. Nil means that
// the search failed; then no file with several names may be read.
type strictNames map[fileKey]vpath.Path

// A verdict is epoch<<8 | traversable<<7 | transformed<<6 | permission. Epoch 0 is never
// current.
const (
	verdictPermission  = 1<<6 - 1
	verdictTransformed = 1 << 6 // the content is not shown as it is
	verdictTraversable = 1 << 7
	verdictEpoch       = 8
	epochMask          = 1<<24 - 1
)

// permission returns the present permission of n: the strictest among n's names, or that of
// the last name if n has none.
func (fs *FS) permission(n *node) policy.Permission {
	v := fs.verdict(n, fs.rules.Load())
	p := policy.Permission(v & verdictPermission)
	if p == policy.None && n.isDir() && v&verdictTraversable != 0 {
		return policy.View
	}
	return p
}

// verdict returns the verdict of r on n.
func (fs *FS) verdict(n *node, r *rules) uint32 {
	v := n.verdict.Load()
	if v>>verdictEpoch != r.epoch {
		v = r.epoch<<verdictEpoch | fs.effectivePermission(n, r)
		n.verdict.Store(v)
	}
	return v
}

// rule caches the decision d of p on n if n has one name only.
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
	if !d.Transform.IsZero() {
		v |= verdictTransformed
	}
	return v
}

func (fs *FS) effectivePermission(n *node, r *rules) uint32 {
	fs.nodes.mu.RLock()
	paths := fs.nodes.decidingLocked(n, r)
	worst := uint32(policy.Write) // the process that uses a file without a name has made it
	if r.strict == nil && fs.nodes.extraOfLocked(n).file != (fileKey{}) {
		worst = uint32(policy.View)
	}
	fs.nodes.mu.RUnlock()
	return worstOf(r, paths, worst)
}

// decidingLocked returns the paths on which the permission of n depends: its names, the strictest
// name of its file, and the last name if it has lost all.
func (t *table) decidingLocked(n *node, r *rules) []vpath.Path {
	p, named := t.pathLocked(n)
	x := t.extraOfLocked(n)
	if !named {
		p = x.last
	}
	var paths []vpath.Path
	if p != "" {
		paths = append(paths, p)
	}
	for _, l := range x.links {
		if p, ok := t.pathLocked(l.parent); ok {
			paths = append(paths, p.Child(l.name))
		}
	}
	return append(paths, r.strictest(x.file)...)
}

// worstOf returns the strictest verdict on the paths, at most worst. A file whose names show
// different contents shows none.
func worstOf(r *rules, paths []vpath.Path, worst uint32) uint32 {
	var transform policy.Transform
	asked, differ := false, false
	for _, p := range paths {
		d := r.Decide(p)
		if v := verdictOf(d); v&verdictPermission <= worst&verdictPermission {
			worst = v
		}
		differ = differ || asked && d.Transform != transform
		transform, asked = d.Transform, true
	}
	if differ && worst&verdictPermission > uint32(policy.View) {
		return uint32(policy.View)
	}
	return worst
}

// strictest returns the strictest name of the file key, if its names have different
// classes.
func (r *rules) strictest(key fileKey) []vpath.Path {
	if p, ok := r.strict[key]; ok {
		return []vpath.Path{p}
	}
	return nil
}

// findStrict finds the files of the delta with names to which p gives different classes. A
// link never crosses classes, so such links were made under another policy.
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
			is, was := p.Decide(name), p.Decide(worst)
			differ = differ || is.Permission != was.Permission || is.Transform != was.Transform
			if is.Permission < was.Permission || is.Permission == was.Permission && was.Transform.IsZero() {
				worst = name
			}
		}
		if differ {
			strict[key] = worst
		}
	}
	return strict, nil
}

// decide returns the decision on name in the directory parent at p.
func (fs *FS) decide(parent *node, p vpath.Path, name string) policy.Decision {
	return fs.stateOf(parent, p).DecideChild(name)
}

// stateOf returns the policy's evaluation at a directory. The directory caches it until the
// policy or the directory's path changes.
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

// nextEpoch puts p in force and drops every verdict. With nil the policy stays.
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

// Policy returns the policy in force.
func (fs *FS) Policy() *policy.Policy { return fs.rules.Load().Policy }

// SetPolicy puts p in force for every operation that begins afterwards. It returns when the
// kernel has dropped what only the old policy allowed. Data that a program has already read
// stays with it. An access to a mapping of a file that is no longer readable gets SIGBUS.
// Do not call SetPolicy from OnDenial or OnChange.
func (fs *FS) SetPolicy(p *policy.Policy) {
	fs.prefetch.gate.Lock() // a store under way was checked against the old policy
	old := fs.rules.Load()
	fs.moves.Lock() // so that findStrict misses no link
	strict, err := fs.findStrict(p)
	if err != nil {
		fs.log.Error("look for links", "err", err)
	}
	fs.o.Layer.SetTransforms(shown.Transforms(p))
	affected := fs.affected(old, &rules{Policy: p, strict: strict})
	fs.nextEpoch(p, strict)
	fs.moves.Unlock()
	fs.prefetch.gate.Unlock()
	for _, n := range affected {
		fs.revoke(n, old.Policy)
	}
	fs.notify.barrier()
}

// revoke drops what the kernel caches of a node if its decision has changed.
func (fs *FS) revoke(n *node, old *policy.Policy) {
	fs.nodes.mu.RLock()
	p, named := fs.nodes.pathLocked(n)
	parent, name := n.parent, n.name
	fs.nodes.mu.RUnlock()
	if n.isDir() {
		n.dir.outdate()
	}
	now, was := fs.permission(n), old.Decide(p)
	fs.once.drop(n, true, now)
	if named && parent != nil && now == policy.None && was.ForDir() != policy.None {
		fs.notify.entry(parent.id, name)
	}
	other := named && !n.isDir() && was.Transform != fs.Policy().Decide(p).Transform
	if other {
		fs.retransform(n, parent, name)
	}
	if !other && fs.once.brings(n, now, was.Permission) {
		return
	}
	if other || n.isDir() || n.is(flagExtra|flagNameless) || was.Permission != now {
		fs.notify.inode(n.id)
	}
}
