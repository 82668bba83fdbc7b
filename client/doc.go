// Package client runs commands in policy-guarded sandboxes of an agentfense
// server.
//
//	c, err := client.New(ctx)
//	…
//	dir, err := c.Link(ctx, "/home/me/repo")
//	box, err := c.CreateSandbox(ctx, dir.ID, client.WithPreset("agent-safe"))
//	result, err := box.Run(ctx, "make test", client.WithTimeout(time.Minute))
//	review, err := box.Diff(ctx)
//
// Without an endpoint the client finds the running server of this user, or starts
// one that ends when nobody needs it any more.
//
// A Client and everything made from it are safe for concurrent use. Each call
// takes a context; when that ends, the command of the call is ended too, unless
// it was detached. An error is an *Error, whose kind errors.Is finds:
//
//	if errors.Is(err, client.ErrNotFound) { … }
//
// Paths are those inside the workspace, without a leading slash, and may hold
// any bytes but NUL; what is not UTF-8 the server writes escaped (docs/rest.md).
package client
