package attack_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A file that the kernel knows by several names, by none, by another one than before, or far below
// a locked directory, is locked with it: descriptors, names and mappings that the kernel has cached
// write no more when lock has returned. All others go on to write.
func TestALockTakesAFileByWhateverName(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"dir/far/below/f": "first", "dir/f": "first", "dir/leaves": "first", "out/enters": "first", "out/f": "first"})
	untouched := s.Untouched()
	agentfense(t, s, "run", "--detach", "--preset", "full-access", "--name", "holder")
	d := s.Talk(holdNames, nil, "--preset", "full-access")
	ask := func(line, want string) {
		t.Helper()
		if got := d.Ask(line); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	held := strings.Fields(d.Ask("names"))
	if len(held) != 8 {
		t.Fatalf("held are %v", held)
	}
	for _, name := range held {
		ask("write "+name, "success")
		ask("store "+name, "success")
	}
	for _, locked := range []bool{true, false, true} {
		verb, taken := "unlock", "success"
		if locked {
			verb, taken = "lock", "EACCES"
		}
		agentfense(t, s, verb, "holder", "dir")
		for _, name := range held {
			want := taken
			if name == "out/f" || name == "out/left" {
				want = "success"
			}
			ask("write "+name, want)
			ask("truncate "+name, want)
			if name != "gone" {
				ask("open "+name, want)
			}
			if locked && want != "success" {
				ask("msync "+name, "refused")
			}
		}
	}
	if r := d.End(); r.Code != 0 {
		t.Error(r.Stderr)
	}
	agentfense(t, s, "stop", "holder")
	untouched()
}

// holdNames opens and maps files, gives them other names, and tries them when asked.
var holdNames = program("hold names", func(in *inside, _ []string) {
	fds, pages := map[string]int{}, map[string][]byte{}
	hold := func(name string) int {
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT, 0o644)
		in.works("open "+name, err)
		in.works("grow "+name, unix.Ftruncate(fd, 4096))
		page, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		in.works("map "+name, err)
		pages[name] = page
		return fd
	}
	renamed := func(from, to string) {
		fds[to] = hold(from)
		pages[to] = pages[from]
		in.works("rename", unix.Rename(from, to))
	}
	for _, name := range []string{"dir/far/below/f", "dir/f", "out/f"} {
		fds[name] = hold(name)
	}
	fds["gone"] = hold("dir/gone")
	pages["gone"] = pages["dir/gone"]
	in.works("unlink", unix.Unlink("dir/gone"))
	hold("dir/several")
	in.works("link", unix.Link("dir/several", "out/several"))
	fds["out/several"] = hold("out/several")
	renamed("dir/leaves", "out/left")
	renamed("out/enters", "dir/entered")
	in.works("make a directory", unix.Mkdir("moving", 0o755))
	fds["dir/moved/f"] = hold("moving/f")
	pages["dir/moved/f"] = pages["moving/f"]
	in.works("move a directory", unix.Rename("moving", "dir/moved"))

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		in.checks++
		verb, name, _ := strings.Cut(lines.Text(), " ")
		if verb == "names" {
			for name := range fds {
				fmt.Print(name, " ")
			}
			fmt.Println()
			continue
		}
		fmt.Println(tryName(verb, name, fds[name], pages[name]))
	}
})

func tryName(verb, name string, fd int, page []byte) string {
	switch verb {
	case "write":
		_, err := unix.Pwrite(fd, []byte("changed"), 0)
		return errnoName(errnoOf(err))
	case "truncate":
		return errnoName(errnoOf(unix.Ftruncate(fd, 4096)))
	case "open":
		return errnoName(errnoOf(opened(name, unix.O_WRONLY)))
	case "store":
		page[100] = 'x'
		return errnoName(errnoOf(unix.Msync(page, unix.MS_SYNC)))
	case "msync":
		page[100]++
		if unix.Msync(page, unix.MS_SYNC) == nil {
			return "stored"
		}
		return "refused"
	}
	return "what?"
}
