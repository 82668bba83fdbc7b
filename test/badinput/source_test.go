package badinput_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// outside runs the verbs of s from a directory that stays.
func outside(t *testing.T, s *harness.Sandbox, source string) (run func(script string) harness.Result) {
	t.Helper()
	s.Source = t.TempDir()
	return func(script string) harness.Result {
		t.Helper()
		return s.Agentfense("run", "--name", s.Name, "--dir", source, "--", "sh", "-c", script)
	}
}

// detached makes a sandbox of source that runs, in which delta was written.
func detached(t *testing.T, s *harness.Sandbox, source string) {
	t.Helper()
	wantCode(t, s.Agentfense("run", "--detach", "--preset", "full-access", "--name", s.Name, "--dir", source, "--", "sleep", "600"), 0)
	prints(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "cat seen; echo changed > changed; echo delta > delta; rm gone; cat delta"), "seen\ndelta\n")
}

// goesOn checks that what was written is there, whatever became of the source,
// and that more can be written.
func goesOn(t *testing.T, s *harness.Sandbox) {
	t.Helper()
	prints(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "cat changed delta; echo more >> delta; tail -n 1 delta; echo new > new; test ! -e gone"),
		"changed\ndelta\nmore\n")
}

// nothingLost checks, with the source back, that the next run resumes.
func nothingLost(t *testing.T, s *harness.Sandbox, run func(string) harness.Result) {
	t.Helper()
	prints(t, run("cat seen changed delta new; test ! -e gone"), "seen\nchanged\ndelta\nmore\nnew\n")
	prints(t, s.Agentfense("diff", s.Name, "--name-status"), "M\tchanged\nA\tdelta\nD\tgone\nA\tnew\n")
	wantCode(t, s.Agentfense("audit", s.Name, "--verify"), 0)
}

// wholeOnDisk checks what is left where there is no source to show it over: the
// delta is a plain directory.
func wholeOnDisk(t *testing.T, s *harness.Sandbox) {
	t.Helper()
	for name, want := range map[string]string{"changed": "changed\n", "delta": "delta\nmore\n", "new": "new\n"} {
		data, err := os.ReadFile(filepath.Join(s.Home, "sandboxes", s.Name, "layers", "top", name))
		if err != nil || string(data) != want {
			t.Errorf("in the delta %s holds %q, %v", name, data, err)
		}
	}
}

var sourceFiles = map[string]string{"seen": "seen\n", "unseen": "unseen\n", "changed": "old\n", "gone": "gone\n", "dir/x": "x\n"}

// fill makes sourceFiles in dir.
func fill(t *testing.T, dir string) {
	t.Helper()
	for path, content := range sourceFiles {
		full := filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// Renamed away, a source is still the running sandbox's; a run that looks for
// it is told, and finds everything once it is back.
func TestSourceRenamed(t *testing.T) {
	s := harness.New(t, binary, nil)
	source := filepath.Join(t.TempDir(), "source")
	fill(t, source)
	run := outside(t, s, source)
	detached(t, s, source)
	if err := os.Rename(source, source+".away"); err != nil {
		t.Fatal(err)
	}
	goesOn(t, s)
	prints(t, s.Agentfense("exec", s.Name, "--", "cat", "unseen", "dir/x"), "unseen\nx\n")
	wantCode(t, s.Agentfense("stop", s.Name), 0)
	wantCode(t, run("true"), 125, "source "+source, "no such directory")
	wantCode(t, s.Agentfense("exec", s.Name, "--", "true"), 125, "source "+source, "no such directory")
	if r := s.Agentfense("apply", s.Name); r.Code == 0 || !strings.Contains(r.Stderr, "source "+source) {
		t.Errorf("apply to a source that is away: %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	// Another directory in its place is not taken for it.
	fill(t, source)
	wantCode(t, run("true"), 125, "another directory")
	if r := s.Agentfense("apply", s.Name); r.Code == 0 || !strings.Contains(r.Stderr, "another directory") {
		t.Errorf("apply to another directory: %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	if err := errors.Join(os.RemoveAll(source), os.Rename(source+".away", source)); err != nil {
		t.Fatal(err)
	}
	nothingLost(t, s, run)
	wantCode(t, s.Agentfense("apply", s.Name), 0)
	if data, err := os.ReadFile(filepath.Join(source, "delta")); err != nil || string(data) != "delta\nmore\n" {
		t.Errorf("applied, delta holds %q, %v", data, err)
	}
}

// Removed while a sandbox runs, a source shows nothing any more; what was
// written stays, and can be got out.
func TestSourceRemoved(t *testing.T) {
	s := harness.New(t, binary, nil)
	source := filepath.Join(t.TempDir(), "source")
	fill(t, source)
	run := outside(t, s, source)
	detached(t, s, source)
	if err := os.RemoveAll(source); err != nil {
		t.Fatal(err)
	}
	goesOn(t, s)
	if r := s.Agentfense("exec", s.Name, "--", "cat", "unseen"); r.Code == 0 || r.Stdout != "" {
		t.Errorf("a removed file shows %q", r.Stdout)
	}
	wantCode(t, s.Agentfense("stop", s.Name), 0)
	wantCode(t, run("true"), 125, "source "+source, "no such directory")
	wholeOnDisk(t, s)
	if r := s.Agentfense("apply", s.Name); r.Code == 0 || !strings.Contains(r.Stderr, "source "+source) {
		t.Errorf("apply to a source that is gone: %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	wantCode(t, s.Agentfense("rm", s.Name), 1, "not applied")
	wantCode(t, s.Agentfense("rm", "--force", s.Name), 0)
}

// Detached from the tree, a source's file system lives on for who has it.
func TestSourceUnmounted(t *testing.T) {
	ownMounts(t)
	s := harness.New(t, binary, nil)
	source := t.TempDir()
	mountTmpfs(t, source, "")
	fill(t, source)
	run := outside(t, s, source)
	detached(t, s, source)
	if err := unix.Unmount(source, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	goesOn(t, s)
	prints(t, s.Agentfense("exec", s.Name, "--", "cat", "unseen", "dir/x"), "unseen\nx\n")
	wantCode(t, s.Agentfense("stop", s.Name), 0)
	wantCode(t, run("true"), 125, "another directory")
	wholeOnDisk(t, s)
	if r := s.Agentfense("apply", s.Name); r.Code == 0 || !strings.Contains(r.Stderr, "source "+source) {
		t.Errorf("apply to what is below the mount point: %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	if entries, err := os.ReadDir(source); err != nil || len(entries) != 0 {
		t.Errorf("below the mount point: %v, %v", entries, err)
	}
}

// A source whose server is gone answers nothing but errors: they arrive
// inside, nobody waits, and once the server is back nothing is missing.
func TestSourceServerDies(t *testing.T) {
	ownMounts(t)
	s := harness.New(t, binary, nil)
	kept, source := t.TempDir(), t.TempDir()
	fill(t, kept)
	server := startServer(t, kept, source)
	t.Cleanup(func() { unmount(source) })
	run := outside(t, s, source)
	detached(t, s, source)
	killServer(t, server)
	prints(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "cat changed delta; echo more >> delta; tail -n 1 delta; test ! -e gone"),
		"changed\ndelta\nmore\n")
	r := s.Agentfense("exec", s.Name, "--", "cat", "unseen", "dir/x")
	if r.Code == 0 || r.Stdout != "" || strings.Count(r.Stderr, "cat: ") != 2 {
		t.Errorf("files of a source that is gone: %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	wantCode(t, s.Agentfense("stop", s.Name), 0)
	for what, r := range map[string]harness.Result{
		"run": run("true"), "exec": s.Agentfense("exec", s.Name, "--", "true"),
		"a new sandbox": s.Agentfense("run", "--name", "new", "--dir", source, "--", "true"),
	} {
		if r.Code != 125 || !strings.Contains(r.Stderr, "source "+source) || !strings.Contains(r.Stderr, "file system") {
			t.Errorf("%s: %d, %q", what, r.Code, r.Stderr)
		}
	}
	if r := s.Agentfense("apply", s.Name); r.Code == 0 || !strings.Contains(r.Stderr, "source "+source) {
		t.Errorf("apply: %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	unmount(source)
	killServerAtEnd := startServer(t, kept, source)
	defer killServer(t, killServerAtEnd)
	prints(t, run("echo new > new"), "")
	nothingLost(t, s, run)
}

// What the user cannot read shows as unreadable, and the rest as it is.
func TestSourceUnreadableInParts(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, map[string]string{
		"mine": "mine\n", "closed": "closed\n", "theirs": "theirs\n", "list/x": "x\n", "search/x": "x\n", "dir/theirs": "theirs\n",
	}, harness.Ordinary)
	at := func(name string) string { return filepath.Join(s.Source, name) }
	for _, err := range []error{
		os.Chmod(at("closed"), 0), // the user's own
		os.Chown(at("theirs"), 0, 0), os.Chmod(at("theirs"), 0o600),
		os.Chown(at("dir/theirs"), 0, 0), os.Chmod(at("dir/theirs"), 0o600),
		os.Chown(at("list"), 0, 0), os.Chmod(at("list"), 0o711),
		os.Chown(at("search"), 0, 0), os.Chmod(at("search"), 0o744),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := s.Run(`cat mine; ls; for f in closed theirs dir/theirs search/x; do cat $f && echo $f can be read; done
ls list && echo list can be listed; cat list/x; ls search; stat -c %s theirs closed
echo new > dir/new; cp mine copy; for f in theirs dir/theirs; do echo x >> $f && echo $f can be written; done; true`, "--preset", "full-access")
	want := "mine\nclosed\ndir\nlist\nmine\nsearch\ntheirs\nx\n7\n7\n"
	if r.Stdout != want {
		t.Errorf("stdout %q, want %q\n%s", r.Stdout, want, r.Stderr)
	}
	// Each refusal says so: four files, two lists.
	if got := strings.Count(r.Stderr, "Permission denied"); got < 6 {
		t.Errorf("%d refusals, want 6 and those of writing:\n%s", got, r.Stderr)
	}
	prints(t, s.Agentfense("diff", s.Name, "--name-status"), "A\tcopy\nA\tdir/new\n")
	wantCode(t, s.Agentfense("apply", s.Name), 0)
	if s.Read("theirs") != "theirs\n" || s.Read("dir/new") != "new\n" {
		t.Error("the source is not as it should be")
	}
}
