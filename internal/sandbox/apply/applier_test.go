package apply

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

func TestAFailingDiskIsNoServerThatIsGone(t *testing.T) {
	s := &step{}
	s.Path = "/d/f"
	a := applier{
		work: &changes.Work{Lock: &record.Lock{}}, plan: &plan{}, total: 1, broken: nil,
		progress: func(int, int) {},
	}
	a.finish(s, &os.PathError{Op: "read", Path: "f", Err: unix.EIO})
	if s.outcome != Failed || !strings.Contains(s.reason, "input/output error on the disk") {
		t.Errorf("outcome %q: %s", s.outcome, s.reason)
	}
	if kind := errdefs.KindOf(a.failure); kind != errdefs.Precondition {
		t.Errorf("kind %v, want %v: %v", kind, errdefs.Precondition, a.failure)
	}
}

func TestGitFilesArePlacedObjectsFirstAndHEADLast(t *testing.T) {
	order := []int{
		gitRank("/.git/objects/ab/cdef"), gitRank("/src/main.go"), gitRank("/.git/index"),
		gitRank("/.git/refs/heads/main"), gitRank("/.git/HEAD"),
	}
	for i := 1; i < len(order); i++ {
		if order[i-1] >= order[i] {
			t.Errorf("order %v is not ascending at %d", order, i)
		}
	}
	if gitRank("/a/.git/packed-refs") != rankRef {
		t.Error("packed-refs is no ref")
	}
}
