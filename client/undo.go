package client

import (
	"context"
	"errors"
)

// undo calls remove, also if ctx has ended. If this user's own server has died, undo uses the next
// one, and starts it if necessary. The first server may already have removed the object.
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
	if next.home != c.home { // another server does not have the object
		return err
	}
	if err = remove(ctx, next); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
