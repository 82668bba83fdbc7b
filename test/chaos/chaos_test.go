// Package chaos_test kills and stops every process of agentfense at random
// moments, under load, and checks after each blow that what was promised holds:
// every file of the source and of the view is whole and of a version that it may
// have, what a command had written and synced is there, every verb still works,
// nothing was reached but the allowed hosts, which can be reached again, and after rm
// nothing is left of processes, mounts, control groups and files.
//
// A world is one state directory with one sandbox and its source: root's, an
// ordinary user's, or a server's. In two of them the files are in a mount, and in one
// of these the end of a command applies them. In others commands connect to servers of
// the test, in a network of the test's own, and the host connects to a server inside.
// Worlds live side by side, one life after the other; at the end of a life its sandbox
// is removed and what is left is looked for. The moments come from the seed, which each
// run prints; what the machine does meanwhile no seed repeats.
package chaos_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

var (
	duration = flag.Duration("chaos.duration", time.Minute, "how long to kill")
	seed     = flag.Uint64("chaos.seed", 1, "where the moments come from; 0 draws one")
)

var (
	binary    string
	reachable *harness.World // where the servers are
)

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil { // worlds wait more than they work
		panic(err)
	}
	os.Exit(harness.InWorld(&reachable, func() int { return harness.RunTests(m, &binary, harness.BuildWithServer) }))
}

// TestChaos lets the worlds live until the time is over.
func TestChaos(t *testing.T) {
	testenv.Root(t)
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d, for %s; again: go test ./test/chaos -chaos.seed=%[1]d -chaos.duration=%[2]s", *seed, *duration)
	outside.begin(t)
	end := time.Now().Add(*duration)
	kinds := map[string]func(t *testing.T) *world{
		"root":                 newLocal,
		"root, with limits":    newLimited,
		"an ordinary user":     newOrdinary,
		"files in a mount":     newWritable,
		"kept files":           newKept,
		"a client of a server": newServed,
	}
	for kind, begin := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for life := 0; time.Now().Before(end); life++ {
				t.Run(fmt.Sprint("life ", life), func(t *testing.T) {
					w := begin(t)
					w.random = rand.New(rand.NewPCG(*seed, hashOf(fmt.Sprint(kind, life))))
					w.live(end)
				})
			}
		})
	}
}

func hashOf(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text)) // it never fails
	return h.Sum64()
}
