package script_test

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// binaryVariable and storiesVariable name the binary to the same tests of an
// ordinary user, and the directory with the stories.
const (
	binaryVariable  = "AGENTFENSE_TEST_BINARY"
	storiesVariable = "AGENTFENSE_TEST_STORIES"
)

// workStories are told by whoever runs the tests and, where that is root, by an
// ordinary user too.
const workStories = "testdata/work"

// TestWorkStories runs the stories of setting projects up inside, with what pip,
// npm, cargo and go do. They use the programs below /usr, which are there inside;
// a story skips what a machine does not have. Their own commands and conditions:
//
//	wheel DIR FILE       make a wheel of what is in the directory
//	[inside:NAME]        there is a program of that name inside
func TestWorkStories(t *testing.T) {
	if dir := os.Getenv(storiesVariable); dir != "" {
		run(t, dir) // whoever started these tests has looked at what they need
		return
	}
	needWork(t)
	run(t, workStories)
}

func needWork(t *testing.T) {
	t.Helper()
	testenv.FUSE(t)
	testenv.Bwrap(t)
	testenv.Command(t, "git", insideDirs[0]+"/python3", "npm", "openssl")
}

// The ordinary user is none that the system knows, and is in a further group.
const ordinaryUser, ordinaryGroup = 61234, 61235

// TestWorkStoriesOfAnOrdinaryUser runs them again, the commands outside and the
// server too, as an ordinary user.
func TestWorkStoriesOfAnOrdinaryUser(t *testing.T) {
	testenv.Root(t) // an ordinary user's TestWorkStories does so itself
	needWork(t)
	testenv.OpenFUSE(t)
	testenv.UserNS(t)
	dir := t.TempDir()
	for _, open := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(open, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, temp := filepath.Join(dir, "tests"), filepath.Join(dir, "tmp")
	copyFile(t, "/proc/self/exe", self, 0o755)
	stories, err := filepath.Glob(workStories + "/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, story := range stories {
		copyFile(t, story, filepath.Join(dir, filepath.Base(story)), 0o644)
	}
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(temp, ordinaryUser, ordinaryUser); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^TestWorkStories$", "-test.v", "-test.count=1"}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), binaryVariable+"="+binary, storiesVariable+"="+dir, "TMPDIR="+temp, "HOME="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: ordinaryUser, Gid: ordinaryUser, Groups: []uint32{ordinaryGroup},
	}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestWorkStories ") {
		t.Errorf("%v\n%s", err, out)
	}
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func init() { serverCommands["wheel"] = cmdWheel }

// insideDirs are where the programs inside lie.
var insideDirs = []string{"/usr/bin", "/usr/local/bin", "/usr/local/go/bin"}

// isInside reports whether there is a program of that name inside.
func isInside(name string) bool {
	for _, dir := range insideDirs {
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil && strings.HasPrefix(real, "/usr/") {
			return true
		}
	}
	return false
}

// cmdWheel makes a wheel (PEP 427) of what is in a directory, with a RECORD that
// names no digests.
func cmdWheel(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: wheel DIR FILE")
	}
	file := ts.MkAbs(args[1])
	ts.Check(os.MkdirAll(filepath.Dir(file), 0o755))
	to, err := os.Create(file)
	ts.Check(err)
	defer to.Close()
	z := zip.NewWriter(to)
	tree := os.DirFS(ts.MkAbs(args[0]))
	var record strings.Builder
	recordName := "RECORD"
	ts.Check(fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		if filepath.Base(path) == "WHEEL" {
			recordName = filepath.Join(filepath.Dir(path), "RECORD")
		}
		fmt.Fprintf(&record, "%s,,\n", path)
		return addFile(z, path, data)
	}))
	ts.Check(addFile(z, recordName, []byte(record.String()+recordName+",,\n")))
	ts.Check(z.Close())
}

func addFile(z *zip.Writer, path string, data []byte) error {
	w, err := z.Create(path)
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}
