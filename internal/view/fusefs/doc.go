// Package fusefs shows a layer.Stack through a policy.Policy as a FUSE mount.
//
// It owns one mount: what the kernel is told of each path, what it may cache, and what is refused.
// It promises that no reply gives more than the policy does (attr.go makes every attribute reply;
// each operation on a file's content asks the policy again), that the warm path costs no round
// trip, and that every refusal by policy reaches Options.OnDenial. It does not store anything,
// isolate processes, or touch its own mount: a user of the package must not either, see Mount.
//
// Lock order: FS.moves, a node's stripe (FS.stripes), dir.mu, table.mu, fdCache.mu. watcher.mu is
// taken before what the layer locks; notifier.mu, denials.mu and storer.mu are leaves. See FS.
package fusefs
