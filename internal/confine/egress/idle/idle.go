// Package idle gives memory of a process back to the kernel while the process serves nothing.
package idle

import (
	"debug/elf"
	"runtime/debug"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// idleAfter is how long nothing is served before the process gives memory back.
const idleAfter = time.Second

// Trimmer gives memory back that a process without connections does not need: there is one for
// each sandbox, and most wait. Its zero value does nothing before the first connection ends.
type Trimmer struct {
	mu    sync.Mutex
	busy  int // connections
	timer *time.Timer
}

// Begin says that a connection is served until the function is called that it returns.
func (t *Trimmer) Begin() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy++
	if t.timer != nil {
		t.timer.Stop()
	}
	return t.end
}

func (t *Trimmer) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	switch {
	case t.busy > 0:
	case t.timer == nil:
		t.timer = time.AfterFunc(idleAfter, t.trim)
	default:
		t.timer.Reset(idleAfter)
	}
}

// trim gives memory back, unless there is a connection again.
func (t *Trimmer) trim() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy > 0 {
		return
	}
	debug.FreeOSMemory()
	dropText()
}

// dropText gives the pages of the program's code and constants back to the kernel, which maps them
// again when they are used. The process may not read /proc, so it asks its own program headers
// (getauxval(3), elf(5)). Only segments that cannot be written are touched.
func dropText() {
	vector, err := unix.Auxv()
	if err != nil {
		return
	}
	auxv := map[uintptr]uintptr{}
	for _, entry := range vector {
		auxv[entry[0]] = entry[1]
	}
	const atPHDR, atPHENT, atPHNUM = 3, 4, 5 // <linux/auxvec.h>
	at, count := auxv[atPHDR], auxv[atPHNUM]
	if at == 0 || auxv[atPHENT] != unsafe.Sizeof(elf.Prog64{}) {
		return
	}
	headers := unsafe.Slice(*(**elf.Prog64)(unsafe.Pointer(&at)), count) // the kernel put them there
	var bias uintptr
	for _, h := range headers {
		if elf.ProgType(h.Type) == elf.PT_PHDR {
			bias = at - uintptr(h.Vaddr) // where a program lies that can lie anywhere
		}
	}
	page := uintptr(unix.Getpagesize())
	for _, h := range headers {
		if elf.ProgType(h.Type) != elf.PT_LOAD || elf.ProgFlag(h.Flags)&elf.PF_W != 0 {
			continue
		}
		begin := (bias + uintptr(h.Vaddr)) &^ (page - 1)
		end := (bias + uintptr(h.Vaddr) + uintptr(h.Memsz)) &^ (page - 1)
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, begin, end-begin, unix.MADV_DONTNEED)
	}
}
