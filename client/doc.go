// Package client runs commands in policy-guarded sandboxes of an agentfense
// server. One call makes a sandbox of a directory:
//
//	box, err := client.FromLocal(ctx, "/home/me/repo", client.WithPreset("agent-safe"))
//	if err != nil {
//		return err
//	}
//	defer box.Close()
//	result, err := box.Run(ctx, "make test", client.WithTimeout(time.Minute))
//	…
//	changes, err := box.Diff(ctx)
//	…
//	applied, err := box.Apply(ctx, "src")
//
// Nothing that a command does reaches the directory before Apply. With New there
// is a [Client], over whose one connection many codebases, sandboxes and sessions
// are made. docs/go.md introduces the package, with an example of each thing.
//
// Without an endpoint the client finds the running server of this user, or starts
// one, for which it needs the program agentfense; that server ends when nobody
// needs it any more.
//
// # Contexts and cleaning up
//
// Each call takes a context; when that ends, the command of the call is ended
// too, unless it was detached. What makes something is not interrupted: it
// undoes what it has made, and returns the context's error then. What removes
// something, [Sandbox.Close], [Sandbox.Destroy] and [Session.Close], does so also
// where the context has ended. No call waits for a silent server without an end.
//
// # Errors
//
// An error is an *[Error], whose kind errors.Is finds:
//
//	if errors.Is(err, client.ErrNotFound) { … }
//
// A command that failed is no error: see [ExecResult].
//
// # Concurrency and paths
//
// A Client and everything made from it are safe for concurrent use, but an [AttachedExec]'s
// streams for one reader or writer each.
//
// Paths are those inside the workspace: "/workspace/x", "/x" and "x" are one. They
// may hold any bytes but NUL.
package client
