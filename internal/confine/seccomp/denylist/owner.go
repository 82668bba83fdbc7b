package denylist

import (
	"fmt"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/seccomp"
)

// chowns are the calls that change a file's owner, with the index of the user argument. The
// group argument follows it.
var chowns = []struct {
	call string
	user uint32
}{
	{"chown", 1}, {"fchown", 1}, {"lchown", 1}, {"fchownat", 2},
}

// unchanged is the id by which chown(2) leaves the user or the group as it is.
const unchanged = ^uint32(0)

// owners refuses with EPERM to change a file's owner to another user, as the kernel does
// for an ordinary user. For ids that are not mapped inside the kernel would return EINVAL,
// which programs take for a bug of their own.
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

// unlessOwn refuses the call unless the low word of the argument, the part that the kernel
// uses, is own or unchanged.
func unlessOwn(arg, own uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArgs + 8*arg, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unchanged, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: own, SkipTrue: 1},
		bpf.RetConstant{Val: uint32(errno(unix.EPERM))},
	}
}
