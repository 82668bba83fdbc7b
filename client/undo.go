package client

import (
	"context"
	"errors"
)

// undo has remove called, also where ctx has ended. What this user's own server
// had is still there when it has died, and goes by way of the next one, which is
// started if need be. That may find that the first one was done with it.
func (c *Client) undo(ctx context.Context, remove func(context.Context, *Client) error) error {
	ctx = context.WithoutCancel(ctx)
	err := remove(ctx, c)
	if c.home == "" || !errors.Is(err, ErrUnavailable) {
		return err
	}
	next, missing := newClient(ctx, c.settings)
	if missing != nil {
		return errors.Join(err, missing)
	}
	defer next.Close()
	if next.home != c.home { // another server knows nothing of it
		return err
	}
	if err = remove(ctx, next); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
