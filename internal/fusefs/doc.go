// Package fusefs shows a layer.Stack through a policy.Policy as a FUSE mount.
//
// It owns one mount: what the kernel is told of each path, what it may cache,
// and what is refused. It promises that no reply of any kind gives more than
// the policy does (attr.go makes every attribute reply; each operation on a
// file's content asks the policy again), that the warm path costs no round
// trip, and that every refusal by policy reaches Options.OnDenial. It does not
// store anything, isolate processes, or touch its own mount: whoever uses the
// package must not either, see Mount.
//
// # No state per open file
//
// OPEN, FLUSH and OPENDIR answer ENOSYS, after which the kernel neither asks
// nor tells about opens any more. So everything hangs on the node: descriptors
// live in a bounded cache (fds.go), directory offsets are numbers that a name
// keeps (readdir.go), and what was unlinked lives until FORGET (remove.go).
//
// # Nodes
//
// A node is a path: two names of one source file are two nodes, so that the
// pages of the stricter one never show through the other. Only hard links made
// inside share a node. The number the kernel knows a node by is never used
// twice.
//
// # Locks
//
// In this order: FS.moves (shared by whatever goes from a node to its path and
// on to the layer, exclusive for changes of names of directories and for
// links), a node's stripe (FS.stripes: identity and descriptor of the node
// change under it), dir.mu, table.mu, fdCache.mu. watcher.mu is taken before
// what the layer locks; notifier.mu, denials.mu and storer.mu are leaves. No
// lock that a handler takes is held while the kernel is notified: the storers
// hold prefetcher.gate then, which only they and SetPolicy take.
//
// # Goroutines
//
// fuseconn's readers run the handlers. One goroutine notifies the kernel, two
// store file contents, one reads inotify, one tells of refusals that were counted, one has the disk
// begin with large files. All end with the mount. A handler that waits for
// another of them, or for a disk, says so first (fuseconn.Conn.StandIn).
package fusefs
