// Package fusefs shows a layer.Stack through a policy.Policy as a FUSE mount.
//
// It owns one mount: the replies to the kernel, what the kernel may cache, and the
// refusals. It promises that no reply gives more than the policy does (attr.go makes every
// attribute reply; each operation on a file's content asks the policy again), that the warm
// path costs no round trip, and that every refusal by policy reaches Options.OnDenial. It
// does not store files, isolate processes or access its own mount. Its callers must not
// access the mount either, see Mount.
//
// Lock order: FS.moves, a node's stripe (FS.stripes), dir.mu, table.mu, fdCache.mu. watcher.mu is
// taken before what the layer locks; notifier.mu, denials.mu and storer.mu are leaves. See FS.
package fusefs
