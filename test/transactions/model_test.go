// Package transactions_test edits a source and its sandboxes at random, takes snapshots, forks,
// applies, undoes and kills, and compares everything with a model after each step: no byte may be
// lost, nothing may change but what was applied, and an apply is refused exactly where it must be.
package transactions_test

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

var binary string // which can be killed

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"checks": "15", "steps": "60", "seed": "17"} { // flags still have their way
		if err := flag.Set("rapid."+name, value); err != nil {
			panic(err)
		}
	}
	harness.Programs(map[string]func(args []string) int{programName: doOperations})
	harness.Main(m, &binary, harness.BuildAloneToCrash)
}

func TestTransactionsKeepEverything(t *testing.T) {
	testenv.Bwrap(t)
	testenv.FUSE(t)
	base := inMemory(t)
	program, err := copyProgram(base)
	if err != nil {
		t.Fatal(err)
	}
	n, did := 0, counts{}
	rapid.Check(t, func(rt *rapid.T) {
		n++
		root := filepath.Join(base, fmt.Sprint(n))
		defer removeDir(root)
		w := newWorld(rt, root, program, did)
		rt.Repeat(map[string]func(*rapid.T){
			"": w.check, "source": w.in((*world).editSource), "link": w.in((*world).linkSource), "inside": w.in((*world).editInside), "inside2": w.in((*world).editInside),
			"snapshot": w.snapshot, "restore": w.restore, "fork": w.fork, "remove": w.remove, "apply": w.in((*world).apply), "apply2": w.in((*world).apply),
			"reverse": w.in((*world).reverse), "reverse2": w.in((*world).reverse), "hunks": w.in((*world).applyHunks), "hunks2": w.in((*world).applyHunks),
			"kill": w.kill, "lock": w.lockAndEdit, "merge forks": w.mergeForks, "contradict": w.in((*world).contradict), "contradict2": w.in((*world).contradict),
		})
	})
	did.check(t, n)
}

// inMemory returns a directory in which fsync(2) costs nothing, if the user may have one.
func inMemory(t *testing.T) string {
	dir := t.TempDir()
	switch err := unix.Mount("none", dir, "tmpfs", 0, "mode=0755"); {
	case err == nil:
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	case !errors.Is(err, unix.EPERM):
		t.Fatal(err)
	}
	return dir
}
