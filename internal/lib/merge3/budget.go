package merge3

import "context"

// maxSteps is how many steps a merge takes at git's thoroughness. What is left of a comparison is
// then made quickly: it finds more differences than there are, and so more conflicts.
const maxSteps = 100_000_000

// budget is how many steps are left, and whether the merge goes on at all.
type budget struct {
	ctx       context.Context //nolint:containedctx // of one call of Lines
	steps     int
	untilLook int // steps until the next look at ctx
	err       error
}

// lookEvery is how many steps are made without a look at the context: about a millisecond's.
const lookEvery = 100_000

func newBudget(ctx context.Context) *budget { return &budget{ctx: ctx, steps: maxSteps} }

func (w *budget) use(steps int) {
	w.steps -= steps
	w.untilLook -= steps
}

// isUsedUp reports whether the rest must be quick.
func (w *budget) isUsedUp() bool { return w.steps <= 0 }

// ended reports whether the context has ended, so that no result is wanted.
func (w *budget) ended() bool {
	if w.untilLook <= 0 && w.err == nil {
		w.untilLook = lookEvery
		w.err = w.ctx.Err()
	}
	return w.err != nil
}
