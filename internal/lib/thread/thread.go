// Package thread runs functions on threads of their own, for what the kernel binds to a thread:
// namespaces, the signal at a parent's death, ambient capabilities.
package thread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Go starts do in a goroutine on a thread that nothing else uses, and that ends with do.
func Go(do func()) { go onOwn(do) }

// onOwn calls do on the calling thread, unless that is the main one: it would not end but be
// parked for ever, with all that do has bound to it. While we hold it, another goroutine gets
// another thread.
func onOwn(do func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		do()
		return
	}
	moved := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(moved)
		do()
	}()
	<-moved
	runtime.UnlockOSThread()
}
