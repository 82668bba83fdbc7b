package fusefs

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/shown"
)

// serves reports whether f has the content that the policy in force shows of n. Whatever reads
// from a file asks it: the layer has made the content, and this is a second check, by node. It
// fails for what was opened under another policy or at another path.
func (fs *FS) serves(n *node, f *layer.File) bool { return f.Transform() == fs.transformKey(n) }

// transformKey returns the key of the transform of n, "" if n shows its content. A node with
// names of different transforms is not readable, see effectivePermission.
func (fs *FS) transformKey(n *node) string {
	r := fs.rules.Load()
	if !r.HasTransforms() || fs.verdict(n, r)&verdictTransformed == 0 {
		return ""
	}
	p, named := fs.nodes.path(n)
	if !named {
		p = fs.nodes.extra(n).last
	}
	return shown.Key(r.Decide(p).Transform)
}

// cached returns n's handle as fdCache.get, if its content may be served. Else it drops the
// handle.
func (fs *FS) cached(n *node, write bool) *handle {
	h := fs.fds.get(n, write)
	if h == nil || fs.serves(n, h.file) {
		return h
	}
	fs.fds.release(h)
	fs.fds.drop(n)
	return nil
}

// redacts reports whether the content of the entry decides if it is visible.
func redacts(d policy.Decision, mode uint32) bool {
	return d.Transform.Redact != policy.NoFormat && mode&unix.S_IFMT == unix.S_IFREG
}

// lists reports whether the directory p lists the entry name, on which the decision is d.
func (fs *FS) lists(p vpath.Path, e *layer.DirEntry, d policy.Decision) bool {
	if !visible(d, e.Mode) || !redacts(d, e.Mode) {
		return visible(d, e.Mode)
	}
	_, err := fs.o.Layer.LookupIn(p, e.Name)
	return err == nil
}

// retransform drops what is cached of n, a file that shows another content than before. The
// same node shows the new content, so descriptors of programs remain usable.
func (fs *FS) retransform(n, parent *node, name string) {
	fs.fds.drop(n)
	n.backing.Store(0)
	n.shown.Store(0)
	if parent != nil {
		fs.notify.entry(parent.id, name)
	}
}
