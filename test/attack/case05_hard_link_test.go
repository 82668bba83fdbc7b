package attack_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A permission applies to the path and to the file: another name of a restricted file gives
// no more rights, whether it is made inside or existed before.
func TestHardLinksWidenNothing(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		eachHiding(t, func(t *testing.T, h hiding) { hardLinksWidenNothing(t, h, who...) })
	})
}

func hardLinksWidenNothing(t *testing.T, h hiding, who ...harness.Option) {
	s := harness.New(t, binary, map[string]string{
		"read/file": "read", "view/file": "view", "none/file": "none", "write/own": "own", "write/key.pem": "none",
	}, who...)
	for _, name := range []string{"read", "view", "none"} {
		if err := os.Link(filepath.Join(s.Source, name, "file"), filepath.Join(s.Source, "write", "also "+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(s.Source, "read/file"), filepath.Join(s.Source, "view/also read")); err != nil {
		t.Fatal(err)
	}
	untouched := s.Untouched()
	flags := append(h.flags("none/", "*.pem"), "--preset", "read-only", "--write", "write/", "--view", "view/")
	passes(t, s, linkAcross, h.args(), flags...)
	untouched()
	if n := s.Denied("/read/file"); n == 0 {
		t.Error("no refusal at /read/file is in the audit log")
	}
	// What was written by one name is applied to that name: the other
	// names keep the file they had.
	agentfense(t, s, "apply", s.Name)
	for name, want := range map[string]string{
		"write/also read": "changed", "write/also view": "changed", "write/also none": "changed",
		"read/file": "read", "view/file": "view", "none/file": "none", "write/key.pem": "none",
	} {
		if got := s.Read(name); got != want {
			t.Errorf("applied, %s holds %q, want %q", name, got, want)
		}
	}
}

var linkAcross = program("link across", func(in *inside, args []string) {
	for _, from := range []string{"read/file", "view/file"} {
		in.errno("link "+from, unix.Link(from, "write/linked"), unix.EACCES)
		fd, err := unix.Open(from, unix.O_PATH, 0)
		in.works("O_PATH", err)
		in.errno("link by /proc/self/fd "+from,
			unix.Linkat(unix.AT_FDCWD, procFD(fd), unix.AT_FDCWD, "write/linked", unix.AT_SYMLINK_FOLLOW), unix.EACCES)
		// Kernels before 6.10 ask for a capability first, and answer ENOENT.
		in.refused("link by descriptor "+from, unix.Linkat(fd, "", unix.AT_FDCWD, "write/linked", unix.AT_EMPTY_PATH),
			unix.EACCES, unix.ENOENT)
		unix.Close(fd)
	}
	in.errno("link none/file", unix.Link("none/file", "write/linked"), unix.ENOENT)
	in.errno("nothing was linked", unix.Lstat("write/linked", new(unix.Stat_t)), unix.ENOENT)
	in.errno("link into read", unix.Link("write/own", "read/linked"), unix.EACCES)
	in.errno("link into view", unix.Link("write/own", "view/linked"), unix.EACCES)
	in.errno("link into none", unix.Link("write/own", "none/linked"), unix.ENOENT)
	in.errno("link over none", unix.Link("write/own", "none"), unix.EACCES)
	ownNamesHaveOneLink(in, hidingOf(args))

	// Names that the source gave the files are files of their own here.
	for _, name := range []string{"read", "view", "none"} {
		also := "write/also " + name
		var st unix.Stat_t
		in.works("stat", unix.Stat(also, &st))
		in.is("links of "+also, st.Nlink, uint64(1))
		in.works("write", os.WriteFile(also, []byte("changed"), 0o644))
	}
	data, err := os.ReadFile("read/file")
	in.works("read", err)
	in.is("content of read/file", string(data), "read")
	in.errno("read by the stricter name", opened("view/also read", unix.O_RDONLY), unix.EACCES)
	in.errno("write by the stricter name", opened("read/file", unix.O_WRONLY), unix.EACCES)
	in.errno("read view/file", opened("view/file", unix.O_RDONLY), unix.EACCES)
})

// ownNamesHaveOneLink links to hidden names that may be made, of which the source has
// one, and from them.
func ownNamesHaveOneLink(in *inside, h hiding) {
	linking := unix.EACCES
	if h == hidesOwn {
		linking = unix.EXDEV
	}
	for _, name := range []string{"write/key.pem", "write/absent.pem"} {
		in.errno("link to "+name, unix.Link("write/own", name), linking)
		in.errno("link from "+name, unix.Link(name, "write/linked"), unix.ENOENT)
		in.errno("make "+name, opened(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY), h.making())
		if h != hidesOwn {
			continue
		}
		in.errno("link from the own "+name, unix.Link(name, "write/linked"), unix.EXDEV)
		in.errno("link from the own "+name+" to another", unix.Link(name, "write/other.pem"), unix.EXDEV)
		var st unix.Stat_t
		in.works("stat", unix.Stat(name, &st))
		in.is("links of "+name, st.Nlink, uint64(1))
	}
}

// If a new policy gives the names of a file different classes, the strictest applies to
// each name.
func TestAFileHasItsStrictestNamesPermission(t *testing.T) {
	const script = "cat a; echo x >> a; echo x >> b; chmod 600 b; truncate -s 0 a; cat b"
	for _, tt := range []struct {
		name   string
		flags  []string
		stdout string
	}{
		{"read", []string{"--read", "c"}, "old\nold\n"},
		{"view", []string{"--view", "c"}, ""},
		{"none", hidesOwn.flags("c"), ""},
		{"none, strictly", hidesStrict.flags("c"), ""},
	} {
		t.Run("a name that becomes "+tt.name+" while the sandbox runs", func(t *testing.T) {
			s := harness.New(t, binary, nil)
			d := s.Talk(holdLinks, nil, "--preset", "full-access")
			if got := d.Hear(); got != "linked" {
				t.Fatal(got)
			}
			if r := s.Run(script, append(tt.flags, "--preset", "full-access")...); r.Stdout != tt.stdout {
				t.Errorf("stdout %q, want %q\n%s", r.Stdout, tt.stdout, r.Stderr)
			}
			if r := d.End(); r.Code != 0 {
				t.Error(r.Stderr)
			}
			prints(t, s, "cat a", "old\n", "--preset", "full-access")
		})
		t.Run("a name that becomes "+tt.name+" before the next run", func(t *testing.T) {
			s := harness.New(t, binary, nil)
			prints(t, s, "echo old > a && ln a b && ln a c", "", "--preset", "full-access")
			if r := s.Run(script, append(tt.flags, "--preset", "full-access")...); r.Stdout != tt.stdout {
				t.Errorf("stdout %q, want %q\n%s", r.Stdout, tt.stdout, r.Stderr)
			}
			prints(t, s, "cat a", "old\n", "--preset", "full-access")
		})
	}
}

// holdLinks makes a file of three names and waits for the end of its input.
var holdLinks = program("hold links", func(in *inside, _ []string) {
	in.works("write", os.WriteFile("a", []byte("old\n"), 0o644))
	in.errno("link", unix.Link("a", "b"), 0)
	in.errno("link", unix.Link("a", "c"), 0)
	os.Stdout.WriteString("linked\n")
	_, err := io.ReadAll(os.Stdin)
	in.works("wait", err)
})
