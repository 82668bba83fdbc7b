package query

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/landlock"
	"github.com/agentfense/agentfense/internal/lib/thread"
)

// The process can open this program, which it is, and no other file of the host.
func TestTheProcessOpensNoOtherFile(t *testing.T) {
	if landlock.Version() == 0 {
		t.Skip("the kernel has no Landlock")
	}
	outside := t.TempDir() + "/outside"
	if err := os.WriteFile(outside, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	got := make(chan [4]error)
	thread.Go(func() {
		restricted := restrict()
		_, program := os.ReadFile(thisProgram)
		_, read := os.ReadFile(outside)
		got <- [4]error{restricted, program, read, os.WriteFile(outside, nil, 0o666)}
	})
	errs := <-got
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], unix.EACCES) || !errors.Is(errs[3], unix.EACCES) {
		t.Errorf("restrict %v, program %v, another file: read %v, write %v", errs[0], errs[1], errs[2], errs[3])
	}
}
