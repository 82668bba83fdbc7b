// Package seccomp has the system-call filters of every sandbox.
//
// The filters are a deny list in addition to namespaces, dropped capabilities and
// no_new_privs. They block parts of the kernel that a confined program does not need and
// that have been used to escape from sandboxes. Package denylist has the list, with
// reasons. The filter of sockets notifies PID 1, which installs it (docs/adr/0066).
//
// One program for each architecture is compiled ahead of time and embedded. PID 1 of each
// sandbox and the leader of each exec run this binary, and compiling the list (or linking
// the compiler and its tables) would cost each of them half a millisecond and 160 kB.
package seccomp

import (
	"encoding/binary"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

//go:generate go run ./gen

// OwnUser and OwnGroup are placeholders in the embedded programs for the ids inside a
// sandbox, which Filter replaces. No sandbox has these ids: the host uids of sandboxes are
// lower.
const (
	OwnUser  = 0xa6e1_0001
	OwnGroup = 0xa6e1_0002
)

// instruction is the size of a struct sock_filter, and value the offset of its constant.
const (
	instruction = 8
	value       = 4
)

// Filter returns the filter of all calls but those for sockets, for this architecture and a
// sandbox with these ids inside: an array of struct sock_filter (linux/filter.h), little
// endian, as for the kernel and bwrap --seccomp FD.
//
// Errors: Unsupported, if this architecture has no filter.
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
