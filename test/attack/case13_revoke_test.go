package attack_test

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// New rules of a running sandbox also apply to its open files and mappings.
func TestARevokedFileIsClosedToItsHolder(t *testing.T) {
	for _, tt := range []struct {
		name, flag   string
		read, mapped string
	}{
		{"and strictly none alike", "--hide=strict", "EACCES", "SIGBUS"},
		{"a file that becomes none cannot be read, written or mapped any more", "--hide", "EACCES", "SIGBUS"},
		{"nor can one that becomes view", "--view", "EACCES", "SIGBUS"},
		{"one that becomes read cannot be written any more", "--read", "secret", "secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"dir/f": "secret", "plain": "x"})
			untouched := s.Untouched()
			d := s.Talk(holdOpen, nil, "--preset", "full-access")
			ask := func(line, want string) {
				t.Helper()
				if got := d.Ask(line); got != want {
					t.Errorf("%s: %s, want %s", line, got, want)
				}
			}
			ask("read", "secret")
			ask("map", "secret")
			ask("list", "f")
			ask("at", "success")
			if r := s.Run("true", append(revoking(tt.flag), "--preset", "full-access")...); r.Code != 0 {
				t.Fatal(r.Stderr)
			}
			ask("read", tt.read)
			ask("map", tt.mapped)
			ask("write", "EACCES")
			ask("truncate", "EACCES")
			ask("open again", "EACCES")
			if strings.HasPrefix(tt.flag, "--hide") {
				ask("list", "")
				ask("at", "ENOENT")
				ask("here", "ENOENT")
				ask("make", "EACCES")
				ask("make here", "EACCES")
			}
			if r := d.End(); r.Code != 0 {
				t.Error(r.Stderr)
			}
			untouched()
			prints(t, s, "cat dir/f", "secret", "--preset", "full-access")
		})
	}
}

// revoking are the flags of a policy that takes dir away.
func revoking(flag string) []string {
	if flag == "--hide=strict" {
		return hidesStrict.flags("dir/")
	}
	return []string{flag, "dir/"}
}

// holdOpen opens and maps dir/f, stands in dir, and tries them when asked.
var holdOpen = program("hold open", func(in *inside, _ []string) {
	debug.SetPanicOnFault(true)
	dir, err := unix.Open("dir", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	in.works("open dir", err)
	in.works("chdir", unix.Fchdir(dir))
	fd, err := unix.Open("f", unix.O_RDWR, 0)
	in.works("open", err)
	page, err := unix.Mmap(fd, 0, 6, unix.PROT_READ, unix.MAP_SHARED)
	in.works("map", err)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		in.checks++
		fmt.Println(strings.ReplaceAll(tryHeld(lines.Text(), dir, fd, page), "\n", "|"))
	}
})

func tryHeld(verb string, dir, fd int, page []byte) (answer string) {
	defer func() {
		if recover() != nil {
			answer = "SIGBUS"
		}
	}()
	switch verb {
	case "read":
		buf := make([]byte, 100)
		n, err := unix.Pread(fd, buf, 0)
		if err != nil {
			return errnoName(errnoOf(err))
		}
		return string(buf[:n])
	case "map":
		return strings.Clone(string(page))
	case "write":
		_, err := unix.Pwrite(fd, []byte("changed"), 0)
		return errnoName(errnoOf(err))
	case "truncate":
		return errnoName(errnoOf(unix.Ftruncate(fd, 0)))
	case "open again":
		return errnoName(errnoOf(opened(procFD(fd), unix.O_WRONLY)))
	case "at":
		return errnoName(errnoOf(unix.Fstatat(dir, "f", new(unix.Stat_t), 0)))
	case "make":
		return errnoName(errnoOf(unix.Mkdirat(dir, "new", 0o755)))
	case "make here":
		return errnoName(errnoOf(opened("f", unix.O_CREAT|unix.O_WRONLY)))
	case "here":
		return errnoName(errnoOf(unix.Stat("f", new(unix.Stat_t))))
	case "list":
		unix.Seek(dir, 0, 0)
		again := os.NewFile(uintptr(dir), "dir")
		names, _ := again.Readdirnames(-1)
		return strings.Join(names, " ")
	}
	return "what?"
}

// A descriptor cannot be passed to another sandbox with other rules: no socket, named or
// abstract, connects two sandboxes.
func TestNoDescriptorReachesAnotherSandbox(t *testing.T) {
	one := harness.New(t, binary, map[string]string{"f": "secret"})
	other := harness.New(t, binary, nil)
	other.Source = one.Source
	d := one.Talk(listen, nil, "--preset", "full-access")
	if got := d.Hear(); got != "listening" {
		t.Fatal(got)
	}
	passes(t, other, connect, []string{"sock"}, "--preset", "view-only")
	agentfense(t, one, "apply", one.Name)
	passes(t, other, connect, []string{"sock"}, "--preset", "full-access")
	if r := d.End(); r.Code != 0 {
		t.Error(r.Stderr)
	}
}

var listen = program("listen", func(in *inside, _ []string) {
	for _, name := range []string{"sock", "@agentfense"} {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		in.works("socket", err)
		in.errno("bind "+name, unix.Bind(fd, &unix.SockaddrUnix{Name: name}), 0)
		in.errno("listen "+name, unix.Listen(fd, 1), 0)
	}
	in.errno("connect from within", withSocket("sock", unix.Connect), 0)
	fmt.Println("listening")
	bufio.NewScanner(os.Stdin).Scan()
})

var connect = program("connect", func(in *inside, args []string) {
	in.refused("connect", withSocket(args[0], unix.Connect), unix.ENOENT, unix.ECONNREFUSED, unix.EACCES)
	in.errno("connect abstract", withSocket("@agentfense", unix.Connect), unix.ECONNREFUSED)
})
