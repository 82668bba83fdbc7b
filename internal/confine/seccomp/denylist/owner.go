package denylist

import (
	"fmt"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/seccomp"
)

// chowns are the calls that give a file to somebody, by the argument that is the
// user; the group follows.
var chowns = []struct {
	call string
	user uint32
}{
	{"chown", 1}, {"fchown", 1}, {"lchown", 1}, {"fchownat", 2},
}

// unchanged is the id by which chown(2) leaves the user or the group as it is.
const unchanged = ^uint32(0)

// owners refuses with EPERM, as an ordinary user is refused, to give a file to
// another. For ids that exist only outside the kernel itself would say EINVAL, which
// programs take for their own fault.
func owners(info *arch.Info) ([]bpf.Instruction, error) {
	var all []bpf.Instruction
	found := false
	for _, c := range chowns {
		number, ok := info.SyscallNames[c.call]
		if !ok {
			continue
		}
		found = true
		body := append(unlessOwn(c.user, seccomp.OwnUser), unlessOwn(c.user+1, seccomp.OwnGroup)...)
		all = append(all,
			bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(number), SkipFalse: uint8(len(body))})
		all = append(all, body...)
	}
	if !found {
		return nil, fmt.Errorf("compile filter: no chown on %s", info.Name)
	}
	return all, nil
}

// unlessOwn refuses the call unless the low word of the argument, which is all that
// the kernel reads of it, is own or unchanged.
func unlessOwn(arg, own uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArgs + 8*arg, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unchanged, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: own, SkipTrue: 1},
		bpf.RetConstant{Val: uint32(errno(unix.EPERM))},
	}
}
