package denylist

import (
	"encoding/binary"
	"fmt"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data (linux/seccomp.h).
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16 // of 8 bytes each, the low word first
)

var architectures = map[string]*arch.Info{"amd64": arch.X86_64, "arm64": arch.AARCH64}

// Architectures returns the GOARCH names that have a filter.
func Architectures() []string { return []string{"amd64", "arm64"} }

// Compile returns the filter for goarch, as seccomp.Filter describes it.
func Compile(goarch string) ([]byte, error) {
	instructions, err := assemble(goarch)
	if err != nil {
		return nil, err
	}
	return encode(goarch, instructions)
}

func encode(goarch string, instructions []bpf.Instruction) ([]byte, error) {
	raw, err := bpf.Assemble(instructions)
	if err != nil {
		return nil, fmt.Errorf("assemble filter %s: %w", goarch, err)
	}
	var program []byte
	for _, in := range raw {
		program = binary.LittleEndian.AppendUint16(program, in.Op)
		program = append(program, in.Jt, in.Jf)
		program = binary.LittleEndian.AppendUint32(program, in.K)
	}
	return program, nil
}

func assemble(goarch string) ([]bpf.Instruction, error) {
	info, ok := architectures[goarch]
	if !ok {
		return nil, fmt.Errorf("compile filter: unknown architecture %q", goarch)
	}
	instructions, err := compileRules(info, prologue(info), rules())
	if err != nil {
		return nil, err
	}
	body, err := owners(info)
	if err != nil {
		return nil, err
	}
	instructions = append(instructions, body...)
	return append(instructions, bpf.RetConstant{Val: uint32(seccomp.ActionAllow)}), nil
}

// compileRules appends the instructions of rules.
func compileRules(info *arch.Info, instructions []bpf.Instruction, rules []rule) ([]bpf.Instruction, error) {
	for _, r := range rules {
		body, err := r.compile(info)
		if err != nil {
			return nil, fmt.Errorf("compile filter %s: %w", info.Name, err)
		}
		instructions = append(instructions, body...)
	}
	return instructions, nil
}

// prologue refuses calls to which the rules, written for one set of numbers, do not apply.
// A call through another architecture's entry (int 0x80) kills the process. A number above
// the known ones returns ENOSYS, as on an older kernel: that covers future calls, the x32
// ABI (bit 30), and the numbers from 512 by which some kernels accept x32 calls without
// that bit.
func prologue(info *arch.Info) []bpf.Instruction {
	return append(native(info),
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: highest(info), SkipFalse: 1},
		bpf.RetConstant{Val: uint32(errno(unix.ENOSYS))})
}

func native(info *arch.Info) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(seccomp.ActionKillProcess)},
	}
}

func highest(info *arch.Info) uint32 {
	top := 0
	for number := range info.SyscallNumbers {
		top = max(top, number)
	}
	return uint32(top)
}

// compile returns the instructions of r. A call that r does not refuse continues after
// them.
func (r rule) compile(info *arch.Info) ([]bpf.Instruction, error) {
	var numbers []uint32
	for _, name := range r.calls {
		number, ok := info.SyscallNames[name]
		if ok {
			numbers = append(numbers, uint32(number))
		} else if !known(name) {
			return nil, fmt.Errorf("unknown system call %q", name)
		}
	}
	if len(r.when) == 0 {
		return section(r.action, numbers, nil)
	}
	var instructions []bpf.Instruction
	for _, number := range numbers {
		body, err := section(r.action, []uint32{number}, r.when)
		if err != nil {
			return nil, err
		}
		instructions = append(instructions, body...)
	}
	return instructions, nil
}

// section applies action to the calls under the condition. Each section is a separate
// program that begins by loading the call's number, because a condition leaves an argument
// in the accumulator, and the library would compare that with the number of the next call.
func section(action seccomp.Action, numbers []uint32, when []seccomp.Condition) ([]bpf.Instruction, error) {
	p := seccomp.NewProgram()
	refuse, next := p.NewLabel(), p.NewLabel()
	for i, number := range numbers {
		call := seccomp.SyscallWithConditions{Num: number}
		if when != nil {
			call.Conditions = []seccomp.ArgumentConditions{when}
		}
		call.Assemble(&p, i < len(numbers)-1, refuse, next)
	}
	p.SetLabel(refuse)
	p.Ret(action)
	p.SetLabel(next)
	body, err := p.Assemble()
	if err != nil {
		return nil, err
	}
	// The library turns the errno 0, which means success, into EPERM.
	body[len(body)-1] = bpf.RetConstant{Val: uint32(action)}
	load := bpf.LoadAbsolute{Off: offsetNumber, Size: 4}
	return append([]bpf.Instruction{load}, body...), nil
}

func known(name string) bool {
	for _, info := range architectures {
		if _, ok := info.SyscallNames[name]; ok {
			return true
		}
	}
	return false
}
