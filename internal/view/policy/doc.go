// Package policy decides what a program in a sandbox may do with a path.
//
// Rules are data: read from a YAML file (policyfile), taken from a preset (preset), made from
// command-line flags (ParseFlag) or sent over the wire. Compile turns them into an immutable
// Policy, and Decide answers for one path: none, view, read or write, by which rule and why. A path
// that no rule matches is none. The matching rule of the highest rank wins (see rank). None is
// inherited by the same order: a path is hidden if its own winner says none, or if the winner at an
// ancestor says none and has the higher rank.
//
// The package does no I/O. A Policy and a State are immutable and
// safe for concurrent use; there are no locks.
package policy
