package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// The pages of a file in memory reveal the activity of its readers. A sandbox sees only its
// own reads: it sees the pages of its mount, not those of the source's file.
func TestResidencyTellsOfNobodyElse(t *testing.T) {
	testenv.Command(t, "fincore")
	s := harness.New(t, binary, map[string]string{"f": strings.Repeat("0123456789abcdef", 64<<10), "g": strings.Repeat("x", 1<<20)})
	other := harness.New(t, binary, nil)
	other.Source = s.Source
	for _, name := range []string{"f", "g"} {
		if _, err := os.ReadFile(filepath.Join(s.Source, name)); err != nil { // the host reads
			t.Fatal(err)
		}
	}
	prints(t, other, "cat f g | wc -c", "2097152\n", "--preset", "read-only")
	pages := "fincore --noheadings --bytes --output RES "
	prints(t, s, pages+"f | tr -d ' '; cat f > /dev/null; "+pages+"f | tr -d ' '; "+pages+"g | tr -d ' '",
		"0\n1048576\n0\n", "--preset", "read-only")
	passes(t, other, readWithoutWaiting, nil, "--preset", "read-only")
}

// readWithoutWaiting asks for what is in memory already.
var readWithoutWaiting = program("read without waiting", func(in *inside, _ []string) {
	fd, err := unix.Open("g", unix.O_RDONLY, 0)
	in.works("open", err)
	buf := make([]byte, 4096)
	_, err = unix.Preadv2(fd, [][]byte{buf}, 512<<10, unix.RWF_NOWAIT)
	in.refused("read without waiting", err, unix.EAGAIN, unix.EOPNOTSUPP)
})
