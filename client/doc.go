// Package client runs commands in sandboxes of an agentfense server, under a policy. One call
// creates a sandbox from a directory:
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
// Changes of a command reach the directory only with Apply. New returns a [Client], which creates
// many codebases, sandboxes and sessions over one connection. docs/go.md introduces the package
// with examples.
//
// Without an endpoint the client uses the running server of this user, or starts one with the
// program agentfense. That server ends when it is idle.
//
// # Contexts and cleaning up
//
// The end of a call's context ends the call's command, unless it is detached. A call that creates
// something is not interrupted: it removes what it created, and returns the context's error. A call
// that removes something ([Sandbox.Close], [Sandbox.Destroy] and [Session.Close]) works also after
// its context has ended. Every call has a time-out for a server that does not answer.
//
// # Errors
//
// An error is an *[Error]; errors.Is finds its kind:
//
//	if errors.Is(err, client.ErrNotFound) { … }
//
// A command that failed is not an error: see [ExecResult].
//
// # Concurrency and paths
//
// A Client and all objects created with it are safe for concurrent use, except that each stream of
// an [AttachedExec] is for one reader or writer.
//
// Paths are paths of the workspace: "/workspace/x", "/x" and "x" are the same. They may contain any
// bytes except NUL.
package client
