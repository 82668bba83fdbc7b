package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// keyOf returns the name under which the layer and the table have the entry name of the
// directory at p, and the decision on it. An own entry takes precedence over the source's
// entry with the name. To find it, keyOf looks only at what the program made.
func (fs *FS) keyOf(state policy.State, p vpath.Path, name string) (string, policy.Decision) {
	if !state.IsOwn() && fs.hasOwn(p, name) {
		name = vpath.OwnName(name)
	}
	return name, state.DecideChild(name)
}

// hasOwn reports whether the directory at p, which is not an own entry, has the own entry
// name.
func (fs *FS) hasOwn(p vpath.Path, name string) bool {
	_, err := fs.o.Layer.LookupIn(p, vpath.OwnName(name))
	return err == nil
}

// claim makes s name the own entry at its path. It returns EEXIST if a traversable
// directory shows at the path.
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

// mayLink refuses a link if one of the two names would be an own entry and the other not. A
// file without a name may get either.
func (fs *FS) mayLink(n *node, s *target) fuse.Status {
	if fs.orphan(n) != nil {
		return fuse.OK
	}
	if p, ok := fs.nodes.path(n); s.path.IsOwn() || ok && p.IsOwn() {
		return fuse.Status(unix.EXDEV)
	}
	return fuse.OK
}

// staysOwn reports whether the own entry name may be an own entry in the directory that
// then evaluates.
func staysOwn(name string, then policy.State) bool {
	d := then.DecideChild(vpath.PlainName(name))
	return !then.IsOwn() && d.Permission == policy.None && d.Own
}

// crosses reports whether the move would leave a file with names both in and outside own
// entries.
func crosses(from, to vpath.Path, info *layer.Info) bool {
	return from.IsOwn() != to.IsOwn() && !info.IsDir() && info.Nlink > 1
}

// lookAgain makes the kernel forget that name is absent. It does nothing if the kernel
// knows a node by that name, including an own entry: dropping a directory would reveal that
// another entry exists.
func (fs *FS) lookAgain(parent *node, name string) {
	if fs.nodes.child(parent, name) == nil && fs.nodes.child(parent, vpath.OwnName(name)) == nil {
		fs.notify.entry(parent.id, name)
	}
}
