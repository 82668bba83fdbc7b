package attack_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// enormous has as much that can be asked for without writing it: files of holes, up to the
// largest that the disk has, space that is reserved, and a byte far behind the end. What the
// limit of the disk is for is refused; the rest takes no space. Bytes and inodes that are
// written are case 48's.
const enormous = `for n in 1T 4T 15T 1E 7E; do truncate -s $n holes$n; done 2>/dev/null
fallocate -l 1G reserved 2>/dev/null && echo a gigabyte was reserved
dd if=/dev/zero of=far bs=1 count=1 seek=1T 2>/dev/null
cp --sparse=always holes1T copy; mkfifo pipe 2>/dev/null; ln far link
echo more > more && cat more`

// No file is so large that the review, the apply or the disk would have to take it whole.
func TestFilesOfHoles(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		const limit, most = "10M", 32 << 20
		s := harness.New(t, binary, nil, who...)
		prints(t, s, enormous, "more\n", "--preset", "full-access", "--disk", limit)
		if n := diskUsage(t, filepath.Join(s.Home, "sandboxes")); n > most {
			t.Errorf("the sandbox takes %d bytes", n)
		}
		agentfense(t, s, "diff", s.Name)
		agentfense(t, s, "apply", s.Name, "--latest")
		info, err := os.Stat(filepath.Join(s.Source, "holes1T"))
		if err != nil || info.Size() != 1<<40 {
			t.Errorf("the applied file: %v, %v", info, err)
		}
		if n := diskUsage(t, s.Source); n > most {
			t.Errorf("what was applied takes %d bytes", n)
		}
		agentfense(t, s, "rm", s.Name, "--force")
	})
}

// diskUsage sums the blocks below a directory, in bytes.
func diskUsage(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		total += st.Blocks * 512
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}
