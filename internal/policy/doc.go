// Package policy decides what a program in a sandbox may do with a path.
//
// Rules are data: read from a YAML file (Load), taken from a preset (Preset),
// made from command-line flags (ParseFlag) or sent over the wire. Compile turns
// them into an immutable Policy, and Decide answers for one path: none, view,
// read or write, by which rule and why. A path no rule matches is none.
//
// # Which rule wins
//
// Every rule has one rank, a total order; the matching rule of the highest rank
// wins. Ranks compare first by standing:
//
//	reserved path > --hide > a flag naming exactly this file > rule > flag
//
// and within a standing by priority, then type (file > directory > glob), then
// the length of the literal prefix, then fewer wildcards (a pattern that takes
// everything below its literal prefix has the most), then the stricter
// permission. Rules that still tie permit the same; the first is named.
//
// A widening flag (--write, --read, --view) that matches a path where the
// winning rule is not a none-rule replaces what that rule permits and takes
// over its rank. So a flag never beats a none-rule that wins, always beats
// every other rule, and never hides what the rules alone would show.
//
// None is inherited by the same order: a path is hidden if its own winner says
// none, or if the winner at an ancestor says none and has the higher rank.
//
// # How paths are matched
//
// All patterns are merged into one trie over path elements, which is walked as
// an automaton: one step an element, whatever the number of rules (see
// node). The set of trie nodes reached at a directory (State) also tells what
// any rule could still grant below it, which is what makes a hidden directory
// traversable. Paths are bytes and compared case-sensitively; a pattern's
// wildcards take a character where the name is valid UTF-8 and a byte where it
// is not.
//
// The package does no I/O beyond the reader given to Load. A Policy and a State
// are immutable and safe for concurrent use; there are no locks.
package policy
