package remote

import (
	"context"
	"sync"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/keep"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Keep returns what the server said at the ends of the commands since the last call: it has applied
// what rules with apply: keep match by itself.
func (b *Backend) Keep(context.Context, string) ([]backend.Kept, error) { return b.kept.take(), nil }

// keptPaths are what the ends of commands kept.
type keptPaths struct {
	mu   sync.Mutex
	list []backend.Kept
}

// add takes what the last message of a command says.
func (k *keptPaths) add(last *sandboxv1.ExecOutput) {
	said := wireconv.DecodeEnding(last).Keep
	if said == nil {
		return
	}
	byMount := map[string]*backend.Kept{}
	var mounts []string
	of := func(mount string) *backend.Kept {
		if byMount[mount] == nil {
			byMount[mount] = &backend.Kept{Mount: mount}
			mounts = append(mounts, mount)
		}
		return byMount[mount]
	}
	for _, p := range said.Kept {
		in := of(p.Mount)
		in.Kept = append(in.Kept, keep.KeptPath{Path: p.Path, Keys: p.Keys})
	}
	for _, p := range said.NotKept {
		in := of(p.Mount)
		in.Waits = append(in.Waits, keep.WaitingPath{Path: p.Path, Keys: p.Keys, Why: p.Reason})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, mount := range mounts {
		k.list = append(k.list, *byMount[mount])
	}
	if said.Note != "" {
		k.list = append(k.list, backend.Kept{Note: said.Note})
	}
}

// take returns the list and empties it.
func (k *keptPaths) take() []backend.Kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := k.list
	k.list = nil
	return list
}
