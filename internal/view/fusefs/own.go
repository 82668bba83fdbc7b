package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// keyOf returns the name by which the layer and the table have the entry name of
// the directory at p, and the decision on it. An own entry comes before what the
// source has by the same name; to find it, only what the program made is asked.
func (fs *FS) keyOf(state policy.State, p vpath.Path, name string) (string, policy.Decision) {
	if !state.IsOwn() && fs.hasOwn(p, name) {
		name = vpath.OwnName(name)
	}
	return name, state.DecideChild(name)
}

// hasOwn reports whether the directory at p, which is no own one, has the own
// entry name.
func (fs *FS) hasOwn(p vpath.Path, name string) bool {
	_, err := fs.o.Layer.LookupIn(p, vpath.OwnName(name))
	return err == nil
}

// claim lets s, where a program may make an own entry, name that. Below a path
// that is none, a directory that is only traversable shows, and is in the way.
func (fs *FS) claim(s *target) fuse.Status {
	if s.d.Traversable {
		info, err := fs.o.Layer.LookupIn(s.dir, s.name)
		switch {
		case err == nil && info.IsDir():
			return fuse.Status(unix.EEXIST)
		case err != nil && !notFound(err):
			return fs.fail("look up", s.path, err)
		}
	}
	s.name = vpath.OwnName(s.name)
	s.path = s.dir.Child(s.name)
	s.d = fs.decide(s.parent, s.dir, s.name)
	return fuse.OK
}

// mayLink refuses names of one file in and outside of own entries. A file
// without a name is in neither.
func (fs *FS) mayLink(n *node, s *target) fuse.Status {
	if fs.orphan(n) != nil {
		return fuse.OK
	}
	if p, ok := fs.nodes.path(n); s.path.IsOwn() || ok && p.IsOwn() {
		return fuse.Status(unix.EXDEV)
	}
	return fuse.OK
}

// staysOwn reports whether the own entry name of the directory that state
// evaluates may be in the one that then evaluates, as an own entry.
func staysOwn(name string, then policy.State) bool {
	d := then.DecideChild(vpath.PlainName(name))
	return !then.IsOwn() && d.Permission == policy.None && d.Own
}

// crosses reports whether a file of several names would have them in and outside
// of own entries once one moves.
func crosses(from, to vpath.Path, info *layer.Info) bool {
	return from.IsOwn() != to.IsOwn() && !info.IsDir() && info.Nlink > 1
}

// lookAgain has the kernel forget that name is absent. What it knows by that name it
// keeps, also an own entry beside which there is another: a directory that it forgot
// would tell that.
func (fs *FS) lookAgain(parent *node, name string) {
	if fs.nodes.child(parent, name) == nil && fs.nodes.child(parent, vpath.OwnName(name)) == nil {
		fs.notify.entry(parent.id, name)
	}
}
