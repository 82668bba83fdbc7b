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

import (
	"encoding/binary"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

//go:generate go run ./gen

// OwnUser and OwnGroup stand in the embedded programs for the ids that a sandbox has
// inside, which differ. Nobody has them: the host uids of sandboxes end below.
const (
	OwnUser  = 0xa6e1_0001
	OwnGroup = 0xa6e1_0002
)

// instruction is the size of a struct sock_filter, value where its constant is.
const (
	instruction = 8
	value       = 4
)

// Filter returns the filter for this architecture, for a sandbox with these ids
// inside, as the kernel reads it and as bwrap --seccomp FD takes it: an array of
// struct sock_filter (linux/filter.h), little endian.
//
// Errors: Unsupported, where this architecture has no filter.
func Filter(uid, gid int) ([]byte, error) {
	if len(program) == 0 {
		return nil, errdefs.New(errdefs.Unsupported, "seccomp filter: not available for this architecture")
	}
	filter := slices.Clone(program)
	for i := value; i < len(filter); i += instruction {
		switch binary.LittleEndian.Uint32(filter[i:]) {
		case OwnUser:
			binary.LittleEndian.PutUint32(filter[i:], uint32(uid))
		case OwnGroup:
			binary.LittleEndian.PutUint32(filter[i:], uint32(gid))
		}
	}
	return filter, nil
}
