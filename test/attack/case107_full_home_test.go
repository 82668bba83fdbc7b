package attack_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A command that fills a home directory, which is a mount, with entries and with bytes, under names
// that are kept and under others, is bounded with the workspace by one limit. What was written
// before stays and is kept, and the log says what was reached.
func TestAFullHomeIsBounded(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"f": "one"}, who...)
		home := mountedDir(t)
		write(t, s, home, "state/token", "state/old")
		passes(t, s, attackFill, nil, "--preset", "full-access", "--disk", "256K", "--mount", home+",dst=/opt/home,policy="+policyIn(t, s))
		for name, want := range map[string]string{"state/token": "new", "state/old": "theirs state/old"} {
			if got, err := os.ReadFile(filepath.Join(home, name)); string(got) != want {
				t.Errorf("%s holds %.20q, %v, want %q", name, got, err, want)
			}
		}
		log := s.Agentfense("audit", s.Name, "--json").Stdout
		for _, want := range []string{`"resource":"disk.inodes","limit":256`, `"resource":"disk.bytes","limit":262144`} {
			if !strings.Contains(log, want) {
				t.Errorf("the log has no %s", want)
			}
		}
	})
}

var attackFill = program("fill the home directory", func(in *inside, _ []string) {
	in.works("a login", os.WriteFile("/opt/home/state/token", []byte("new"), 0o644))
	in.refused("bytes without end", fill("/opt/home/state/big"), unix.EDQUOT, unix.ENOSPC)
	in.refused("bytes in the workspace", os.WriteFile("f", make([]byte, 64<<10), 0o644), unix.EDQUOT, unix.ENOSPC)
	in.refused("bytes in what is kept", os.WriteFile("/opt/home/state/old.tmp", make([]byte, 64<<10), 0o644), unix.EDQUOT, unix.ENOSPC)
	in.works("room again", os.Truncate("/opt/home/state/big", 0))
	in.works("a file", os.WriteFile("g", make([]byte, 4<<10), 0o644))
	made, err := 0, error(nil)
	for ; made < 2000 && err == nil; made++ {
		err = os.WriteFile(fmt.Sprintf("/opt/home/%d.secret", made), nil, 0o644)
	}
	in.refused("entries without end", err, unix.EDQUOT, unix.ENOSPC)
	in.refused("an entry in the workspace", os.WriteFile("h", nil, 0o644), unix.EDQUOT, unix.ENOSPC)
})

// fill writes a file until that fails, 2 MiB at most.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 4<<10); err == nil; {
		if at, _ := f.Seek(0, io.SeekCurrent); at >= 2<<20 {
			return nil
		}
		_, err = f.Write(block)
	}
	return err
}
