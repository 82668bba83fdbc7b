package fusefs

import "github.com/agentfense/agentfense/internal/view/policy"

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
