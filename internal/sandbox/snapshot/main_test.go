package snapshot_test

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	// Each step waits for the disk. A flag still has its way.
	if err := flag.Set("rapid.checks", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
