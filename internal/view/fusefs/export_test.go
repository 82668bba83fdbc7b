package fusefs

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// WithoutRules runs do while every handler that needs the policy panics.
func (fs *FS) WithoutRules(do func()) {
	whole := fs.rules.Swap(nil)
	defer fs.rules.Store(whole)
	do()
}

// ChangeRulesAfter puts p in force after wait, while no handler changes names.
func (fs *FS) ChangeRulesAfter(wait func(), p *policy.Policy) {
	fs.moves.Lock()
	defer fs.moves.Unlock()
	wait()
	fs.nextEpoch(p, strictNames{})
}

// NodeID returns the kernel's number for a name in the root.
func (fs *FS) NodeID(name string) uint64 { return fs.nodes.child(fs.root, name).id }

// EndWatch has the kernel end the watch of the directory p, as it does when the
// directory is removed, and waits until it has no watch.
func (fs *FS) EndWatch(p vpath.Path) error {
	n := fs.nodeAt(p)
	fs.watcher.mu.Lock()
	wd := n.dir.wd
	fs.watcher.mu.Unlock()
	if _, err := unix.InotifyRmWatch(fs.watcher.fd, uint32(wd)); err != nil {
		return err
	}
	for n.dir.tried.Load() {
		runtime.Gosched()
	}
	return nil
}
