package transactions_test

import (
	"maps"
	"slices"
	"strings"
	"syscall"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// permission returns what the policy of the sandbox permits at p.
func (d *delta) permission(p string) policy.Permission {
	for at, permission := range d.narrow {
		if p == at || isBelow(p, at) {
			return permission
		}
	}
	if d.lock.covers(p) {
		return policy.Read
	}
	return policy.Write
}

// mayWrite reports whether the sandbox may write the entry at p, and each other name of it.
func (d *delta) mayWrite(p string) bool {
	return !slices.ContainsFunc(d.names(p), func(q string) bool { return d.permission(q) < policy.Write })
}

func (d *delta) isHidden(p string) bool { return d.permission(p) == policy.None }

// mayMove reports whether the sandbox may write all that it sees below the directory p, also where
// a rename to q puts it.
func (d *delta) mayMove(src tree, p, q string) bool {
	for at := range d.view(src) {
		if isBelow(at, p) && !d.isHidden(at) && (d.permission(at) < policy.Write || d.permission(q+at[len(p):]) < policy.Write) {
			return false
		}
	}
	return true
}

// narrowings are the paths that a fork's policy may narrow.
var narrowings = []string{"d", "d", "d/a", "a", odd}

// drawNarrowing draws a path and what a fork of b may do there, or false.
func drawNarrowing(rt *rapid.T, b *box) (p string, permission policy.Permission, ok bool) {
	if !rapid.Bool().Draw(rt, "narrower") {
		return "", 0, false
	}
	p = narrowings[rapid.IntRange(0, len(narrowings)-1).Draw(rt, "narrowed")]
	for at := range b.narrow {
		if at == p || isBelow(at, p) || isBelow(p, at) {
			return "", 0, false
		}
	}
	return p, rapid.SampledFrom([]policy.Permission{policy.None, policy.View, policy.Read}).Draw(rt, "permission"), true
}

// narrowRule changes the record of a fork.
func narrowRule(p string, permission policy.Permission) func(*record.Record) {
	return func(r *record.Record) {
		rule := policy.Rule{Pattern: "/" + p, Type: policy.Directory, Permission: permission}
		r.SetRules(append(slices.Clone(r.Rules), rule), "a test")
	}
}

// narrowTo is the same in the model.
func (d *delta) narrowTo(p string, permission policy.Permission) {
	d.narrow = maps.Clone(d.narrow)
	if d.narrow == nil {
		d.narrow = map[string]policy.Permission{}
	}
	d.narrow[p] = permission
}

// maybeNarrow draws a narrower policy for a fork of b, and returns what makes it.
func (w *world) maybeNarrow(rt *rapid.T, b *box, o *snapshot.ForkOptions) func(fork *box) {
	p, permission, ok := drawNarrowing(rt, b)
	if !ok {
		return func(*box) {}
	}
	o.Change = narrowRule(p, permission)
	w.did["fork: "+permission.String()]++
	return func(fork *box) { fork.narrowTo(p, permission) }
}

// expected is an operation with what its program is told.
type expected struct {
	operation
	errno syscall.Errno
}

// editThrough edits in a sandbox by a program, which sees what the policy shows.
func (w *world) editThrough(rt *rapid.T, b *box, draw func() (edit, bool)) {
	var list []expected
	for range rapid.IntRange(1, 6).Draw(rt, "edits") {
		if e, ok := draw(); ok {
			list = append(list, w.expect(b, e)...)
		}
	}
	if len(list) == 0 {
		return
	}
	var operations []operation
	for _, o := range list {
		operations = append(operations, o.operation)
		if o.errno != 0 {
			w.did["inside: "+o.errno.Error()]++
		}
	}
	got, err := w.through(b, operations)
	w.must(rt, err)
	if len(got) != len(list) {
		rt.Fatalf("%d operations in %s: %d results", len(list), b.name, len(got))
	}
	for i, o := range list {
		if got[i] != o.errno {
			rt.Fatalf("in %s with %v: %v: %v, want %v; all: %v", b.name, b.narrow, o.operation, got[i], o.errno, operations)
		}
	}
}

// expect does an edit in the model, as far as the policy permits it, and returns the operations.
func (w *world) expect(b *box, e edit) []expected {
	if e.what == "remove" {
		return w.expectRemoval(b, e.path)
	}
	now, exists := b.at(w.src, e.path)
	o := operation{Path: []byte(e.path), To: []byte(e.to), Mode: uint32(e.node.mode)}
	switch {
	case e.what != "put":
		o.Do = e.what
	case exists:
		o.Do, o.Text = "write", []byte(e.node.text)
	default:
		o.Do = map[rune]string{'f': "create", 'd': "mkdir", 'l': "symlink"}[e.node.kind]
		o.Text = []byte(e.node.text)
	}
	errno := b.refusal(w.src, &e, now, exists)
	if errno == 0 {
		w.doInModel(b, e)
	}
	return []expected{{o, errno}}
}

// refusal is what a program is told of an edit that is no removal.
func (b *box) refusal(src tree, e *edit, now node, exists bool) syscall.Errno {
	switch {
	case exists && b.isHidden(e.path), b.isHidden(parent(e.path)), e.to != "" && b.isHidden(parent(e.to)):
		return syscall.ENOENT
	case exists && e.what != "rename" && !b.mayWrite(e.path), b.permission(e.path) < policy.Write:
		return syscall.EACCES
	case e.to != "" && b.permission(e.to) < policy.Write:
		return syscall.EACCES
	case e.what == "put" && exists && now.mode&0o200 == 0:
		return syscall.EACCES
	case e.what == "rename" && now.isDir() && !b.mayMove(src, e.path, e.to):
		return syscall.EXDEV
	}
	return 0
}

// expectRemoval is expect for rm -r.
func (w *world) expectRemoval(b *box, p string) []expected {
	var list []expected
	view := b.view(w.src)
	for _, q := range childrenFirst(view) {
		if q != p && !isBelow(q, p) || q != p && b.isHidden(q) {
			continue
		}
		o := expected{operation: operation{Do: "unlink", Path: []byte(q)}}
		if view[q].isDir() {
			o.Do = "rmdir"
		}
		switch {
		case b.isHidden(q):
			o.errno = syscall.ENOENT
		case b.permission(q) < policy.Write:
			o.errno = syscall.EACCES
		case w.hasVisible(b, q):
			o.errno = syscall.ENOTEMPTY
		default:
			b.remove(w.src, q)
		}
		list = append(list, o)
	}
	return list
}

// hasVisible reports whether a sandbox sees an entry in the directory p.
func (w *world) hasVisible(b *box, p string) bool {
	for q := range b.view(w.src) {
		if strings.HasPrefix(q, p+"/") && !b.isHidden(q) {
			return true
		}
	}
	return false
}
