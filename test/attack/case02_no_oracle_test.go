package attack_test

import (
	"bufio"
	number "encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// Two directories that differ only in hidden files look the same: size, times, link counts,
// listings with their offsets, disk usage, and the result of removing them. Timing is
// limited by construction: no reply about a hidden name is cached, and each is given
// without a look at the disk, so that existing and absent names reach the log equally often
// (TestHiddenIsAbsent).
func TestHiddenFilesLeaveNoTrace(t *testing.T) {
	eachHiding(t, hiddenFilesLeaveNoTrace)
}

func hiddenFilesLeaveNoTrace(t *testing.T, h hiding) {
	plain := map[string]string{
		"a/one": "1", "a/two": "2", "a/sub/x": "x", "empty/": "", "mixed/seen": "seen", "other/": "",
	}
	secrets := map[string]string{
		"a/.env": "KEY=1", "a/a.pem": "k", "a/sub/z.pem": strings.Repeat("k", 1<<20), "empty/k.pem": "k",
		"empty/deep.pem/k": "k", "mixed/m.pem": "m", "top.pem/": "", "zz.pem": "z",
	}
	for n := range 300 {
		secrets[fmt.Sprintf("a/many%d.pem", n)] = "k"
	}
	without := begin(t, plain, nil, h)
	with := begin(t, plain, secrets, h)

	compare := func(when, ask string) {
		t.Helper()
		want, got := without.Ask(ask), with.Ask(ask)
		if diff := cmp.Diff(strings.Split(want, "|"), strings.Split(got, "|")); diff != "" {
			t.Errorf("%s, without and with hidden files (-without +with):\n%s", when, diff)
		}
	}
	compare("at first", "look")
	with.change()
	without.change()
	compare("after hidden files came and went", "look")
	compare("removing", "remove")
	compare("after removing", "look")
	compare("making", "make")
	compare("after making", "look")
	compare("removing what was made", "unmake")
	compare("after removing what was made", "look")
	for _, c := range []*compared{without, with} {
		if r := c.End(); r.Code != 0 {
			t.Errorf("exit code %d\n%s", r.Code, r.Stderr)
		}
	}
	for path := range secrets {
		if _, err := os.Lstat(filepath.Join(with.Source, path)); err != nil && path != "a/a.pem" {
			t.Errorf("a hidden file did not survive: %v", err)
		}
	}
}

// compared is one of two sandboxes that should look the same.
type compared struct {
	*harness.Sandbox
	*harness.Dialogue
	t      *testing.T
	hidden bool
}

func begin(t *testing.T, plain, secrets map[string]string, h hiding) *compared {
	s := harness.New(t, binary, plain)
	for path, content := range secrets {
		s.Write(path, content)
	}
	long := time.Unix(1_600_000_000, 0)
	err := filepath.Walk(s.Source, func(path string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, long, long)
	})
	if err != nil {
		t.Fatal(err)
	}
	d := s.Talk(lookAround, nil, append(h.flags("*.pem", ".env"), "--preset", "full-access", "--disk", "64M")...)
	return &compared{Sandbox: s, Dialogue: d, t: t, hidden: secrets != nil}
}

// change changes hidden files of the source and then one that shows, and waits
// until that one does. Changes are told in the order in which they are made.
func (c *compared) change() {
	c.t.Helper()
	if c.hidden {
		c.Write("a/new.pem", "new")
		c.Write("a/sub/z.pem", "shorter")
		if err := os.Remove(filepath.Join(c.Source, "a/a.pem")); err != nil {
			c.t.Fatal(err)
		}
		c.Write("empty/more.pem", "new")
		c.Write("new.pem/x", "new")
	}
	c.Write("other/marker", "x")
	long := time.Unix(1_600_000_001, 0)
	if err := os.Chtimes(filepath.Join(c.Source, "other/marker"), long, long); err != nil {
		c.t.Fatal(err)
	}
	if got := c.Ask("await other/marker"); got != "there" {
		c.t.Fatal(got)
	}
}

// lookAround answers "look", "await PATH", "remove", "make" and "unmake" with one line each.
var lookAround = program("look around", func(in *inside, _ []string) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		in.checks++
		verb, arg, _ := strings.Cut(lines.Text(), " ")
		var answer []string
		switch verb {
		case "look":
			for _, dir := range []string{".", "a", "a/sub", "empty", "mixed"} {
				answer = append(answer, describe(dir)...)
			}
		case "await":
			for unix.Access(arg, unix.F_OK) != nil {
				time.Sleep(time.Millisecond)
			}
			answer = append(answer, "there")
		case "remove":
			for _, dir := range []string{"empty", "mixed", "a/sub", "absent"} {
				answer = append(answer, dir+": "+errnoName(errnoOf(unix.Rmdir(dir))))
			}
			answer = append(answer, "again: "+errnoName(errnoOf(unix.Mkdir("empty", 0o755))))
			setTimes(in, "empty", ".")
		case "make":
			for _, path := range madeAnyway {
				answer = append(answer, makeAt(path)...)
			}
			setTimes(in, "a/sub", "a", "empty", "mixed", ".")
		case "unmake":
			for _, path := range madeAnyway {
				answer = append(answer, path+": "+errnoName(errnoOf(os.Remove(path))))
			}
			setTimes(in, "a/sub", "a", "empty", "mixed", ".")
		}
		fmt.Println(strings.Join(answer, "|"))
	}
})

// madeAnyway are hidden paths: files and directories that one of the sources has,
// one that came and one that went meanwhile, and two that neither has.
var madeAnyway = []string{
	"a/many7.pem", "a/sub/z.pem", "a/.env", "a/new.pem", "a/a.pem", "mixed/m.pem", "zz.pem", "top.pem", "new.pem", "empty/deep.pem", "none.pem", "mixed/none.pem",
}

// makeAt tells how calls that make something at the hidden path end, in turn. What
// is there at last is a file, if anything is.
func makeAt(path string) []string {
	told := []string{path}
	say := func(err error) { told = append(told, errnoName(errnoOf(err))) }
	rename := func(from, to string, flags uint) { say(unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)) }
	say(unix.Mkdir(path, 0o755))
	say(unix.Mkdir(path+"/in", 0o755))
	say(unix.Rmdir(path))
	say(unix.Rmdir(path + "/in"))
	say(unix.Rmdir(path))
	rename("a/one", path, unix.RENAME_EXCHANGE)
	say(unix.Link("a/one", path))
	rename("a/one", path, unix.RENAME_NOREPLACE)
	rename(path, "a/one", unix.RENAME_NOREPLACE)
	say(unix.Symlink("one", path))
	say(unix.Unlink(path))
	say(opened(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY))
	say(opened(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY))
	var st unix.Stat_t
	say(unix.Lstat(path, &st))
	return append(told, fmt.Sprintf("mode %o links %d size %d blocks %d", st.Mode, st.Nlink, st.Size, st.Blocks))
}

// ourTime is what setTimes sets.
const ourTime = 1_600_000_002e9

func setTimes(in *inside, dirs ...string) {
	t := unix.NsecToTimespec(ourTime)
	for _, dir := range dirs {
		in.works("utimes "+dir, unix.UtimesNanoAt(unix.AT_FDCWD, dir, []unix.Timespec{t, t}, 0))
	}
}

// describe tells all that a directory shows but the numbers of its inodes and
// its device, which are the host's and the mount's.
func describe(dir string) []string {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return []string{dir + " " + errnoName(errnoOf(err))}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return []string{err.Error()}
	}
	changed := st.Ctim.Nano()
	if dir == "." || st.Mtim.Nano() == ourTime {
		changed = 0 // the time of our own call
	}
	told := []string{
		fmt.Sprintf("%s mode %o links %d size %d blocks %d of %d times %d %d %d", dir, st.Mode, st.Nlink, st.Size,
			st.Blocks, st.Blksize, st.Atim.Nano(), st.Mtim.Nano(), changed),
		fmt.Sprintf("%s free %d %d of %d, files %d of %d, id %v", dir, fs.Bfree, fs.Bavail, fs.Blocks, fs.Ffree, fs.Files, fs.Fsid),
	}
	return append(told, listing(dir)...)
}

// listing is what getdents64(2) gives, entry by entry: offset, length, type
// and name.
func listing(dir string) []string {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return []string{err.Error()}
	}
	defer unix.Close(fd)
	var told []string
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil {
			return append(told, err.Error())
		}
		if n <= 0 {
			return told
		}
		for at := 0; at < n; {
			length := int(number.NativeEndian.Uint16(buf[at+16:]))
			name, _, _ := strings.Cut(string(buf[at+19:at+length]), "\x00")
			told = append(told, fmt.Sprintf("%s/%s offset %d length %d type %d",
				dir, name, number.NativeEndian.Uint64(buf[at+8:]), length, buf[at+18]))
			at += length
		}
	}
}
