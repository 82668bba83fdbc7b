package fusefs_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// ownRules hides secrets, at which own entries can be made. A name that begins
// with "strict" is hidden by a strict rule.
func ownRules(t testing.TB, more ...policy.Rule) *policy.Policy {
	t.Helper()
	all := append([]policy.Rule{
		{Pattern: "**/*", Permission: policy.Write},
		{Pattern: "*.pem", Permission: policy.None, Priority: 100, Own: true},
		{Pattern: "secrets/", Permission: policy.None, Priority: 100, Own: true},
		{Pattern: "strict*", Permission: policy.None, Priority: 100},
		{Pattern: "/closed/", Permission: policy.Read, Priority: 50},
	}, more...)
	p, err := policy.Compile(all, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ownTree has hidden entries, which own entries replace.
func ownTree() tree {
	return tree{
		"there.pem": "secret", "secrets/inside": "secret", "strict.txt": "secret", "dirs/hidden.pem": "secret",
		"a": "of the source", "d/b": "b", "closed/c": "c", "plain/x": "x", "plain/y.pem": "secret",
	}
}

func mountOwn(t testing.TB) *view {
	t.Helper()
	source := t.TempDir()
	ownTree().make(t, source)
	return mountSource(t, source, func(o *fusefs.Options) { o.Policy = ownRules(t) })
}

func TestOwnEntriesAreTheProgramsOwn(t *testing.T) {
	v := mountOwn(t)
	for _, name := range []string{"there.pem", "absent.pem"} { // one exists in the source
		if _, err := os.Stat(v.path(name)); !errors.Is(err, unix.ENOENT) {
			t.Errorf("stat %s before it is made: %v, want ENOENT", name, err)
		}
		v.write(name, "own")
		if got := v.read(name); got != "own" {
			t.Errorf("%s = %q, want own", name, got)
		}
		if err := os.Rename(v.path(name), v.path("moved.pem")); err != nil {
			t.Errorf("rename %s to another own name: %v", name, err)
		}
		if err := os.Remove(v.path("moved.pem")); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(v.path(name)); !errors.Is(err, unix.ENOENT) {
			t.Errorf("stat %s after it was moved away: %v, want ENOENT", name, err)
		}
	}
	if err := os.Mkdir(v.path("secrets"), 0o755); err != nil {
		t.Fatal(err)
	}
	v.write("secrets/x.pem", "y")
	if err := os.Symlink("x.pem", v.path("secrets/strict-link")); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff("strict-link x.pem", v.names("secrets")); diff != "" {
		t.Errorf("the own directory lists (-want +got):\n%s", diff)
	}
	if got := v.names("."); !strings.Contains(got, "secrets") {
		t.Errorf("the directory lists %q, without what was made in it", got)
	}
	if err := os.Remove(v.path("secrets")); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("rmdir of a full own directory: %v, want ENOTEMPTY", err)
	}
	if err := os.RemoveAll(v.path("secrets")); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(v.path("secrets"), 0o700); err != nil || len(v.names("secrets")) != 0 {
		t.Errorf("made again: %v, %q", err, v.names("secrets"))
	}
	for path, want := range ownTree() { // the source is unchanged
		if b, err := os.ReadFile(v.source + "/" + path); err != nil || string(b) != want {
			t.Errorf("the source's %s = %q, %v", path, b, err)
		}
	}
}

func TestNothingIsMadeAtStrictPaths(t *testing.T) {
	v := mountOwn(t)
	v.write("from", "x")
	for _, name := range []string{"strict.txt", "strict-absent", "closed/x.pem"} {
		to := v.path(name)
		for call, err := range map[string]error{
			"create": os.WriteFile(to, nil, 0o644), "mkdir": os.Mkdir(to, 0o755), "symlink": os.Symlink("x", to),
			"link": os.Link(v.path("from"), to), "rename": os.Rename(v.path("from"), to), "mknod": unix.Mkfifo(to, 0o644),
		} {
			if !errors.Is(err, unix.EACCES) {
				t.Errorf("%s %s: %v, want EACCES", call, name, err)
			}
		}
	}
}

func TestMovingIntoAndOutOfOwnEntries(t *testing.T) {
	v := mountOwn(t)
	if err := os.Rename(v.path("a"), v.path("a.pem")); err != nil || v.read("a.pem") != "of the source" {
		t.Fatalf("rename to an own name: %v", err)
	}
	if err := os.Rename(v.path("a.pem"), v.path("b")); err != nil || v.read("b") != "of the source" {
		t.Fatalf("rename to an ordinary name: %v", err)
	}
	if got := v.layer.Resolve("/b"); got.IsOwn() {
		t.Error("an own entry stayed one at an ordinary path")
	}
	if err := os.Rename(v.path("d"), v.path("secrets")); err != nil || v.read("secrets/b") != "b" {
		t.Fatalf("rename a directory to an own name: %v", err)
	}
	if got := v.layer.Resolve("/secrets/b"); !got.IsOwn() {
		t.Error("what is below a directory that was moved to an own name is not own")
	}
	if err := os.Rename(v.path("secrets"), v.path("e")); err != nil || v.read("e/b") != "b" {
		t.Fatalf("rename an own directory to an ordinary name: %v", err)
	}
	v.write("e/k.pem", "own")
	if err := os.Rename(v.path("e"), v.path("f")); err != nil || v.read("f/k.pem") != "own" {
		t.Errorf("rename a directory in which an own entry stays one: %v", err)
	}
	if err := os.Rename(v.path("f"), v.path("secrets")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("rename a directory with an own entry to an own name: %v, want EXDEV", err)
	}
	if err := os.Mkdir(v.path("secrets"), 0o755); err != nil {
		t.Fatal(err)
	}
	v.write("secrets/z.pem", "z")
	if err := os.Rename(v.path("secrets"), v.path("g")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("rename an own directory where an entry would have to become own: %v, want EXDEV", err)
	}
	if err := os.Rename(v.path("plain"), v.path("strict-name")); !errors.Is(err, unix.EACCES) {
		t.Errorf("rename to a strict name: %v, want EACCES", err)
	}
}

func TestOwnEntriesHaveNoHardLinks(t *testing.T) {
	v := mountOwn(t)
	v.write("own.pem", "x")
	v.write("one", "x")
	if err := os.Mkdir(v.path("secrets"), 0o755); err != nil {
		t.Fatal(err)
	}
	v.write("secrets/s", "x")
	for _, c := range []struct{ from, to string }{
		{"own.pem", "two"}, {"one", "there.pem"}, {"one", "absent.pem"}, {"own.pem", "other.pem"}, {"secrets/s", "secrets/t"},
	} {
		if err := os.Link(v.path(c.from), v.path(c.to)); !errors.Is(err, unix.EXDEV) {
			t.Errorf("link %s %s: %v, want EXDEV", c.from, c.to, err)
		}
	}
	if err := os.Link(v.path("one"), v.path("two")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(v.path("two"), v.path("two.pem")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("rename one of two names to an own name: %v, want EXDEV", err)
	}
	if err := os.Rename(v.path("own.pem"), v.path("two")); err != nil {
		t.Errorf("rename an own entry over one of two names: %v", err)
	}
	fd, err := unix.Open(v.dir, unix.O_TMPFILE|unix.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, v.path("there.pem"), unix.AT_SYMLINK_FOLLOW); err != nil {
		t.Errorf("link a file without a name to an own name: %v", err)
	}
}

func TestAnOwnEntryStaysOneWhateverThePolicyBecomes(t *testing.T) {
	v := mountOwn(t)
	v.write("there.pem", "own")
	open, err := os.OpenFile(v.path("there.pem"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	v.SetPolicy(ownRules(t, policy.Rule{Pattern: "*.pem", Permission: policy.Read, Priority: 200}))
	if got := v.read("there.pem"); got != "own" {
		t.Errorf("after the policy was widened it shows %q, want own", got)
	}
	if _, err := open.WriteAt([]byte("OWN"), 0); err != nil || v.read("there.pem") != "OWN" {
		t.Errorf("what was open: %v", err)
	}
	if got := v.read("plain/y.pem"); got != "secret" {
		t.Errorf("another path shows %q, want the source's", got)
	}
	if err := os.WriteFile(v.source+"/there.pem", []byte("changed by the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := v.read("there.pem"); got != "OWN" {
		t.Errorf("after the host wrote the source's it shows %q", got)
	}
	if err := os.Remove(v.path("there.pem")); err != nil {
		t.Fatal(err)
	}
	if got := v.read("there.pem"); got != "changed by the host" {
		t.Errorf("after the own entry was removed it shows %q, want the source's", got)
	}
	v.SetPolicy(ownRules(t))
	if _, err := os.Stat(v.path("there.pem")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("hidden again: %v", err)
	}
	changes, err := v.layer.Changes()
	if err != nil || len(changes) != 0 {
		t.Errorf("the delta holds %v, %v", changes, err)
	}
}

func TestACopiedUpFileThatBecomesNoneIsHidden(t *testing.T) {
	v := mountOwn(t)
	v.write("a", "changed")
	v.SetPolicy(ownRules(t, policy.Rule{Pattern: "/a", Permission: policy.None, Priority: 200, Own: true}))
	if _, err := os.Stat(v.path("a")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("stat: %v, want ENOENT", err)
	}
	v.write("a", "own")
	if got := v.read("a"); got != "own" {
		t.Errorf("it shows %q, want own", got)
	}
	if err := os.Remove(v.path("a")); err != nil {
		t.Fatal(err)
	}
	v.SetPolicy(ownRules(t))
	if got := v.read("a"); got != "changed" {
		t.Errorf("after all it shows %q, want what was written before", got)
	}
}

// The system calls of a program in order, at names that the source has and at names that it
// does not have. The results must be equal.
func TestAtOwnNamesNothingTellsWhatTheSourceHas(t *testing.T) {
	v := mountOwn(t)
	if err := os.MkdirAll(v.source+"/dir.pem/full", 0o755); err != nil {
		t.Fatal(err)
	}
	v.write("probe", "x")
	before, err := os.Stat(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string][]string{}
	for _, name := range []string{"there.pem", "absent.pem", "dir.pem"} {
		p := v.path(name)
		say := func(err error) {
			var no syscall.Errno
			errors.As(err, &no)
			answers[name] = append(answers[name], no.Error())
		}
		_, err := os.Stat(p)
		say(err)
		say(os.Remove(p))
		say(unix.Rmdir(p))
		say(os.Rename(p, v.path("gone")))
		say(os.Link(p, v.path("gone")))
		say(os.Link(v.path("probe"), p))
		_, err = unix.InotifyAddWatch(0, p, unix.IN_ALL_EVENTS)
		say(err)
		say(unix.Renameat2(unix.AT_FDCWD, v.path("probe"), unix.AT_FDCWD, p, unix.RENAME_EXCHANGE))
		say(os.Mkdir(p, 0o755))
		answers[name] = append(answers[name], v.names(name))
		say(unix.Rmdir(p))
		say(unix.Renameat2(unix.AT_FDCWD, v.path("probe"), unix.AT_FDCWD, p, unix.RENAME_NOREPLACE))
		say(unix.Mkfifo(p, 0o644))
		say(os.Rename(p, v.path("probe")))
		_, err = os.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		say(err)
		var st unix.Stat_t
		say(unix.Lstat(p, &st))
		answers[name] = append(answers[name], strconv.Itoa(int(st.Nlink)), strconv.Itoa(int(st.Size)), strconv.Itoa(int(st.Mode)))
		say(os.Remove(p))
		_, err = os.Stat(p)
		say(err)
	}
	for name, got := range answers {
		if diff := cmp.Diff(answers["absent.pem"], got); diff != "" {
			t.Errorf("%s differs from a name that is absent (-absent +got):\n%s", name, diff)
		}
	}
	after, err := os.Stat(v.dir)
	if err != nil || after.Size() != before.Size() || after.Sys().(*syscall.Stat_t).Nlink != before.Sys().(*syscall.Stat_t).Nlink {
		t.Errorf("the directory's size or links changed: %v", err)
	}
}

func TestHostEventsAtOwnNamesShowNothing(t *testing.T) {
	source := t.TempDir()
	ownTree().make(t, source)
	var mu sync.Mutex
	var sources []fusefs.Change
	v := mountSource(t, source, func(o *fusefs.Options) {
		o.Policy = ownRules(t)
		o.OnSource = func(c fusefs.Change) {
			mu.Lock()
			defer mu.Unlock()
			sources = append(sources, c)
		}
	})
	v.Watch(true)
	v.write("there.pem", "own")
	v.SetPolicy(ownRules(t, policy.Rule{Pattern: "*.pem", Permission: policy.Read, Priority: 200}))
	var told []fusefs.Change
	v.names(".")
	v.change(func(s string) error { return os.Remove(s + "/there.pem") })
	v.change(func(s string) error { return os.WriteFile(s+"/seen", nil, 0o644) }) // an event after that one
	testenv.Eventually(t, "what else the host did shows", func() bool {
		mu.Lock()
		defer mu.Unlock()
		told = append([]fusefs.Change(nil), sources...)
		return v.holds("seen", "") && len(told) > 0
	})
	for _, c := range told {
		if c.Path != "/seen" {
			t.Errorf("the host's change is told inside: %+v", c)
		}
	}
	if got := v.read("there.pem"); got != "own" {
		t.Errorf("it shows %q, want own", got)
	}
}

func TestDenialsOfOwnEntries(t *testing.T) {
	v := mountOwn(t)
	v.write("new.pem", "x")
	if err := os.Mkdir(v.path("secrets"), 0o755); err != nil {
		t.Fatal(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.denials) != 0 {
		t.Errorf("making own entries counts as refused: %+v", v.denials)
	}
	for _, c := range v.changes {
		if !c.Path.IsOwn() {
			t.Errorf("change %+v is not of an own entry", c)
		}
	}
}

// The entries of an own directory stay after Invalidate, whether or not the source has a
// directory with that name.
func TestLookingAgainTellsNothingOfTheSource(t *testing.T) {
	v := mountOwn(t)
	for _, name := range []string{"secrets", "absent.pem"} { // the source has the first
		if err := os.Mkdir(v.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(v.path(name), unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		v.Invalidate("/")
		if at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err != nil || at != v.path(name) {
			t.Errorf("a directory open at %s is at %s, %v", name, at, err)
		}
	}
}
