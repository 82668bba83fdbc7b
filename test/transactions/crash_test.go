package transactions_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// The points at which a process is killed: before the commit mark of the journal, and after it.
var (
	beforeCommit = []string{
		"journal: made", "journal: ready", "sync: intended", "journal: placing", "sync: staged", "sync: swapped", "journal: taken",
		"sync: moved away", "sync: one placed", "history: one moved", "journal: rest kept",
	}
	whileGivingBack = []string{"undo: frozen", "undo: one removed", "undo: one made", "next head: durable"}
	afterCommit     = []string{"journal: committed", "sync: settled", "sync: told", "squash: copied", "squash: merged", "sync: forgotten", "sync: dropped"}
	whileSnapshot   = []string{"freeze: prepared", "freeze: exchanged", "snapshot: frozen", "snapshot: listed"}
	whileRestore    = append([]string{"restore: kept", "restore: rewound", "restore: done"}, whileSnapshot...)
	whileMerge      = []string{
		"freeze: prepared", "freeze: exchanged", "merge: frozen", "merge: base frozen", "merge: cleared", "merge: built",
		"snapshot: frozen", "snapshot: listed", mergePut, mergePut,
	}
	whileFork = []string{"freeze: prepared", "freeze: exchanged", "fork: frozen", "fork: made"}
)

// The points at which a merge is done, and the giving back of an undo.
const (
	mergePut  = "merge: put"
	givenBack = "next head: put"
)

// kill kills something.
func (w *world) kill(rt *rapid.T) {
	does := []func(*rapid.T){w.in((*world).killedApply), w.in((*world).killedApply), w.in((*world).killedReverse), w.killedSnapshot, w.killedRestore, w.killedFork}
	does[rapid.IntRange(0, len(does)-1).Draw(rt, "what")](rt)
}

// killed runs the program, which is killed at a point, unless it ends without having come there.
func (w *world) killed(rt *rapid.T, point string, args ...string) bool {
	armed := filepath.Join(filepath.Dir(w.dir), "point")
	w.must(rt, os.WriteFile(armed, []byte(point), 0o600))
	cmd := exec.CommandContext(rt.Context(), binary, args...)
	cmd.Dir = filepath.Dir(w.dir)
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+w.home.Dir(), failpoint.Variable+"="+armed)
	out, err := cmd.CombinedOutput()
	exit := (*exec.ExitError)(nil)
	if err == nil || errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return err != nil
	}
	rt.Fatalf("agentfense %q: %v\n%s", args, err, out)
	return false
}

// killedApply kills an apply, and lets the next one find what it left.
func (w *world) killedApply(rt *rapid.T) {
	b, sb := w.anyBox(rt)
	paths := drawPaths(rt, b.changes(w.src))
	steps := b.plan(w.src, paths, asks)
	if len(inConflict(steps)) > 0 || !slices.ContainsFunc(parentsFirst(steps), func(p string) bool { return steps[p].outcome == applies }) {
		return
	}
	point := pickOfApply(rt)
	killed := w.killed(rt, point, append([]string{"apply", "--latest", "--in=" + w.mount, "--", b.name}, paths...)...)
	if killed && slices.Contains(beforeCommit, point) {
		w.rolledBack(rt, b, sb, parentsFirst(steps))
		return
	}
	all := len(paths) == 0
	if killed {
		w.applyAgain(rt, sb, paths)
	}
	done := b.applyTo(w.src, steps, all, asks)
	w.applied(rt, b, done, w.last(rt).ID)
}

// applyAgain applies what a killed apply has committed: nothing is to do in the source, and nothing
// is left to do in the delta then.
func (w *world) applyAgain(rt *rapid.T, sb *record.Sandbox, paths []string) {
	each := [][]string{nil}
	if len(paths) > 0 {
		each = slices.Collect(slices.Chunk(paths, 1))
	}
	for _, paths := range each {
		r, err := apply.Changes(rt.Context(), sb, apply.Options{Paths: pathsOf(paths)})
		isGone := len(paths) > 0 && errdefs.Is(err, errdefs.NotFound) // the delta does not have it any more
		if err != nil && !isGone || r.Transaction != "" {
			rt.Fatalf("the apply of %q after the killed one: %v, %+v", paths, err, r)
		}
	}
}

// last returns the last transaction of the source.
func (w *world) last(rt *rapid.T) history.Entry {
	_, entries := w.history(rt)
	for i := range slices.Backward(entries) {
		if entries[i].State == history.Committed {
			return entries[i]
		}
	}
	rt.Fatal("nothing is in the history")
	return history.Entry{}
}

// rolledBack recovers what a killed process has left: the source is as before.
func (w *world) rolledBack(rt *rapid.T, b *box, sb *record.Sandbox, paths []string) {
	w.must(rt, apply.RecoverSource(sb, nil, nil))
	now, err := onDisk(w.dir)
	w.must(rt, err)
	w.same(rt, "the source after the recovery", w.src, now)
	var moved []string // what the sandbox began with, which may have another identity now
	for _, p := range paths {
		base, recorded := b.base[p]
		if n, there := w.src[p]; recorded && there && !n.isDir() && n.identity == base.identity {
			moved = append(moved, p)
		}
	}
	w.identify(rt)
	moved = slices.DeleteFunc(moved, func(p string) bool { return b.isFresh(w.src, p) })
	b.rebase(w.src, moved)
}

// killedReverse kills an undo or a redo.
func (w *world) killedReverse(rt *rapid.T) {
	if len(w.done) == 0 {
		return
	}
	t := w.done[len(w.done)-1]
	b := w.boxes[t.box]
	if b == nil || len(t.refused(w.src)) > 0 {
		return
	}
	sb := w.open(rt, b)
	verb := "undo"
	if t.undoes {
		verb = "redo"
	}
	point := pick(rt, slices.Concat(beforeCommit, []string{"journal: committed", "settle: told", "settle: dropped", "undo: told", givenBack}, whileGivingBack))
	killed := w.killed(rt, point, verb, t.id)
	if killed && slices.Contains(beforeCommit, point) {
		w.rolledBack(rt, b, sb, parentsFirst(t.done))
		return
	}
	if killed && t.undoes {
		w.must(rt, apply.RecoverSource(sb, nil, nil)) // completes a redo
		w.did["redo: completed"]++
	}
	w.reversed(rt, t, w.last(rt).ID, b, !killed || t.undoes || point == givenBack)
	if killed && slices.Contains(whileGivingBack, point) {
		b.giveBack(w.src, w.done[len(w.done)-1].done, true)
		w.did["undo: killed while giving back"]++
	}
}

// killedSnapshot kills the making of a snapshot, or a restore, or a fork.
func (w *world) killedSnapshot(rt *rapid.T) {
	b, sb := w.anyBox(rt)
	point := pick(rt, whileSnapshot)
	killed := w.killed(rt, point, "snapshot", b.name)
	w.frozen(rt, b, sb, killed, point)
}

// frozen is the effect of what froze a sandbox, or was killed in it.
func (w *world) frozen(rt *rapid.T, b *box, sb *record.Sandbox, killed bool, point string) {
	if killed && point == "freeze: prepared" {
		return
	}
	b.freeze()
	list, err := snapshot.Read(sb)
	w.must(rt, err)
	for _, s := range list.Snapshots {
		if b.states[s.Ref()] == nil {
			b.note(s.Ref())
		}
	}
}

func (w *world) killedRestore(rt *rapid.T) {
	b, sb := w.anyBox(rt)
	ref, ok := b.anyState(rt)
	if !ok {
		return
	}
	point := pick(rt, whileRestore)
	before, after := b.view(w.src).describe(), b.states[ref].view(w.src).describe()
	killed := w.killed(rt, point, "restore", b.name, ref)
	now := w.shown(rt, sb, sb.LayersDir()).describe()
	if !maps.Equal(now, before) && !maps.Equal(now, after) {
		rt.Fatalf("a restore killed at %q shows %v, want %v or %v", point, now, before, after)
	}
	w.frozen(rt, b, sb, false, point)
	if killed && point == "restore: rewound" { // the workspace, and not the mount
		b.delta = b.states[ref].clone()
	}
	r, err := snapshot.Restore(sb, ref, false) // again
	w.must(rt, err)
	b.restored(ref, r.Kept)
}

func (w *world) killedFork(rt *rapid.T) {
	if len(w.boxes) >= maxBoxes {
		return
	}
	b, sb := w.anyBox(rt)
	name := w.newName()
	point := pick(rt, whileFork)
	killed := w.killed(rt, point, "fork", b.name, name)
	w.frozen(rt, b, sb, killed, point)
	if !killed || point == "fork: made" {
		w.add(b.fork(name, ""))
	}
}
