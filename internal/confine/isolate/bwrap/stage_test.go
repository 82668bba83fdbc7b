package bwrap

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// The process that binds the view also serves it.
func TestTheViewIsBoundWithoutAskingIt(t *testing.T) {
	testenv.Root(t)
	testenv.FUSE(t)
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close() // ends a request that waits
	dir := t.TempDir()
	view, target := filepath.Join(dir, "view"), filepath.Join(dir, "target")
	if err := os.Mkdir(view, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("silent", view, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0", device.Fd())); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(view, unix.MNT_DETACH)
	file, err := os.OpenFile(view, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	bound := make(chan error, 1)
	go func() { bound <- source{what: "the view", file: file, target: target}.bind() }()
	select {
	case err = <-bound:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the view's answer")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
		t.Errorf("it is not bound: %v", err)
	}
}
