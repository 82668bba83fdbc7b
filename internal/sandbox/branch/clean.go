package branch

import (
	"context"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitcommit"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// CleanOptions say for which sandbox to make a clean repository.
type CleanOptions struct {
	Source record.Source
	Rules  []policy.Rule
	Mode   cleangit.Mode
	// For names the user of a server for whom it is made; "" for the caller. It then has nothing
	// from outside of the source, nor from what was made for another user, and MakeClean waits for
	// the source's lock.
	For string
}

// MakeClean makes the clean repository of a new sandbox, and returns what places it in the
// directory of the sandbox; nil if the mode is that of the source. Errors: those of
// cleangit.Cache.Make; Precondition for a source that leads out of its directory, with For.
func MakeClean(ctx context.Context, home *record.Home, o CleanOptions) (fill func(dir string) error, err error) {
	if !o.Mode.IsClean() {
		return nil, nil
	}
	reserved, err := home.Reserved(o.Source)
	if err != nil {
		return nil, err
	}
	p, err := policy.Compile(o.Rules, policy.Options{Reserved: reserved})
	if err != nil {
		return nil, err
	}
	source, err := o.Source.Open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	if o.For != "" {
		h, err := lockContained(ctx, home, o.Source, nil)
		if err != nil {
			return nil, errdefs.New(errdefs.KindOf(err), "git %s: %w", o.Mode, err)
		}
		defer h.Unlock()
	}
	made, err := cleangit.CacheIn(home.Dir()).MakeFor(ctx, o.For, source, o.Mode, p)
	if err != nil {
		return nil, err
	}
	return made.Fill, nil
}

// lockContained checks that the repository of a source does not lead out of it, and keeps applies
// from changing it until the result is unlocked. Errors: Precondition.
func lockContained(ctx context.Context, home *record.Home, source record.Source, waiting func(holder string)) (*history.Source, error) {
	h := history.Open(home, source)
	if err := h.Lock(ctx, waiting); err != nil {
		return nil, err
	}
	dir, err := source.Open()
	if err == nil {
		defer dir.Close()
		err = gitcommit.CheckContained(dir)
	}
	if err != nil {
		h.Unlock()
		return nil, err
	}
	return h, nil
}
