package attack_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// specialFiles make, at a path, what whoever writes to a directory can put
// there in place of a file that agentfense reads itself, and say what the error
// names. Reading one of them would wait for ever, or fill the host's memory.
var specialFiles = []struct {
	name string
	make func(path string) error
	says string
}{
	{"a FIFO", func(path string) error { return unix.Mkfifo(path, 0o666) }, "is a FIFO"},
	{"a link to an endless device", func(path string) error { return os.Symlink("/dev/zero", path) }, "symbolic link"},
	{"a link to a file elsewhere", func(path string) error { return os.Symlink("/etc/passwd", path) }, "symbolic link"},
	{"a device", func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) }, "is a device"},
	{"a directory", func(path string) error { return os.Mkdir(path, 0o755) }, "is a directory"},
	{"a socket", func(path string) error { return withSocket(path, unix.Bind) }, "is a socket"},
	{"a huge file of holes", func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<42))
	}, "longer than 8388608 bytes"},
}

// withSpecial makes the file name of a source special, a test for each kind.
func withSpecial(t *testing.T, name string, test func(t *testing.T, s *harness.Sandbox, says string)) {
	for _, special := range specialFiles {
		t.Run(special.name, func(t *testing.T) {
			if special.name == "a device" && os.Geteuid() != 0 {
				t.Skip("only root makes devices")
			}
			s := harness.New(t, binary, map[string]string{"file": "x"})
			if err := special.make(filepath.Join(s.Source, name)); err != nil {
				t.Fatal(err)
			}
			test(t, s, special.says)
		})
	}
}

// refuses runs a verb that has to end at once, with an error that names the
// file and says what is wrong with it.
func refuses(t *testing.T, s *harness.Sandbox, file, says string, args ...string) {
	t.Helper()
	r := s.Agentfense(args...)
	if r.Code == 0 || !strings.Contains(r.Stderr, file) || !strings.Contains(r.Stderr, says) {
		t.Errorf("agentfense %s: exit code %d, stderr %q, want %q named and %q", strings.Join(args, " "), r.Code, r.Stderr, file, says)
	}
}

// A project's policy file must be a regular file of limited size. Anything else is refused,
// and never ignored.
func TestSpecialProjectPolicyIsRefused(t *testing.T) {
	const file = ".agentfense.yaml"
	withSpecial(t, file, func(t *testing.T, s *harness.Sandbox, says string) {
		refuses(t, s, file, says, "run", "--rm", "--", "true")
		refuses(t, s, file, says, "policy", "check")
		refuses(t, s, file, says, "policy", "tree")
		refuses(t, s, file, says, "policy", "explain", "/file")
		refuses(t, s, file, says, "run", "--rm", "--policy", file, "--", "true")
		if r := s.Agentfense("run", "--rm", "--preset", "read-only", "--", "true"); r.Code != 0 {
			t.Errorf("a preset that the user chose: exit code %d\n%s", r.Code, r.Stderr)
		}
	})
}

// A policy file in the source is never opened through a link in the source, also if the
// user names it.
func TestPolicyFileIsReachedByNoLinkOfTheSource(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"file": "x"})
	outside := t.TempDir()
	policy := filepath.Join(outside, "policy.yaml")
	if err := os.WriteFile(policy, []byte("version: 1\npreset: read-only\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(s.Source, "way")); err != nil {
		t.Fatal(err)
	}
	refuses(t, s, "way/policy.yaml", "symbolic link", "run", "--rm", "--policy", "way/policy.yaml", "--", "true")
	// Elsewhere the user's own links and pipes count.
	link := filepath.Join(t.TempDir(), "mine")
	if err := os.Symlink(policy, link); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Agentfense("run", "--rm", "--policy", link, "--", "true"), 0)
	cmd := s.Command(t.Context(), "run", "--rm", "--policy", "/dev/stdin", "--", "true")
	cmd.Stdin = strings.NewReader("version: 1\npreset: read-only\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("a policy by a pipe: %v\n%s", err, out)
	}
}
