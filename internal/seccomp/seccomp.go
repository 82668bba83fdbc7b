// Package seccomp holds the system-call filter that every sandbox runs under.
//
// The filter is a deny list on top of namespaces, dropped capabilities and
// no_new_privs: it takes away the parts of the kernel that a confined program
// does not need and that have been the way out of sandboxes before. What it
// refuses, and why, is in package denylist.
//
// The programs are compiled ahead of time, one for each architecture, and
// embedded: PID 1 of each sandbox and the leader of each exec are this same
// binary, and compiling (or just linking the compiler and its system-call
// tables) would cost each of them half a millisecond and 160 kB.
package seccomp

import "github.com/agentfense/agentfense/internal/fault"

//go:generate go run ./gen

// Filter returns the filter for this architecture as the kernel reads it and
// as bwrap --seccomp FD takes it: an array of struct sock_filter
// (linux/filter.h), little endian.
//
// Errors: Unsupported, where this architecture has no filter.
func Filter() ([]byte, error) {
	if len(program) == 0 {
		return nil, fault.New(fault.Unsupported, "seccomp filter: not available for this architecture")
	}
	return program, nil
}
