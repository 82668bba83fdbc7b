package serve_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// installation is a copy of both programs.
type installation struct {
	t             *testing.T
	light, server string
}

// install puts the programs where `make install` does.
func install(t *testing.T) installation {
	t.Helper()
	dir := t.TempDir()
	in := installation{t, filepath.Join(dir, "bin/agentfense"), filepath.Join(dir, "libexec/agentfense/agentfense-server")}
	in.put(binary, in.light)
	in.put(binary+"-server", in.server)
	return in
}

// put copies a program, in place of another as an upgrade does.
func (in installation) put(from, to string) {
	in.t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to+".new", content, 0o755)
	}
	if err == nil {
		err = os.Rename(to+".new", to)
	}
	if err != nil {
		in.t.Fatal(err)
	}
}

// refuses runs a verb, which is to end with 125 and one line that has the words.
func (in installation) refuses(words []string, args ...string) {
	in.t.Helper()
	cmd := exec.Command(in.light, args...)
	cmd.Dir = filepath.Dir(in.server) // which is not where it looks
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+in.t.TempDir(), "PATH="+filepath.Dir(binary))
	out, _ := cmd.CombinedOutput()
	text := string(out)
	if cmd.ProcessState.ExitCode() != 125 || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "agentfense: ") {
		in.t.Errorf("agentfense %q: %s: %s", args, cmd.ProcessState, text)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			in.t.Errorf("agentfense %q says %q, without %q", args, text, word)
		}
	}
}

// serverVerbs need the second program, each in its way.
var serverVerbs = [][]string{
	{"serve"},
	{"ls", "--endpoint", "127.0.0.1:1"},
	{"run", "--endpoint", "127.0.0.1:1", "--", "true"},
	{"token", "ls"},
}

func TestWithoutTheServersProgramItsVerbsSayWhereItBelongs(t *testing.T) {
	in := install(t)
	beside := filepath.Join(filepath.Dir(in.light), "agentfense-server")
	away := filepath.Join(filepath.Dir(in.server), "away")
	if err := os.Rename(in.server, away); err != nil {
		t.Fatal(err)
	}
	for _, args := range serverVerbs {
		in.refuses([]string{"agentfense-server is not installed", beside, in.server, "make install"}, args...)
	}
	if out, err := exec.Command(in.light, "version").CombinedOutput(); err != nil {
		t.Errorf("version needs the server's program: %v: %s", err, out)
	}
}

func TestAServersProgramThatOthersMayWriteIsRefused(t *testing.T) {
	in := install(t)
	if err := os.Chmod(in.server, 0o757); err != nil {
		t.Fatal(err)
	}
	for _, args := range serverVerbs {
		in.refuses([]string{in.server, "may be written by other users"}, args...)
	}
}

func TestProgramsOfTwoBuildsAreRefused(t *testing.T) {
	in := install(t)
	other, err := harness.BuildOther(t.TempDir())
	in.put(must(t, other, err), in.light)
	for _, args := range serverVerbs {
		in.refuses([]string{`agentfense is of build "another`, "install both from one release"}, args...)
	}
}

// The server goes on with the programs that it was started from.
func TestAnUpgradeOnDiskMixesNoVersions(t *testing.T) {
	in := install(t)
	link := filepath.Join(t.TempDir(), "agentfense")
	if err := os.Symlink(in.light, link); err != nil {
		t.Fatal(err)
	}
	before, err := os.Open(in.light)
	must(t, before, err)
	defer before.Close()
	s := &server{t: t, home: t.TempDir(), program: link}
	s.begin()
	other, err := harness.BuildOther(t.TempDir())
	in.put(must(t, other, err), in.light)
	if err := os.Remove(in.server); err != nil {
		t.Fatal(err)
	}
	id := s.sandbox(s.codebase(map[string]string{"f": "content\n"}))
	if got := s.exec(id, "cat f"); got != "content\n" {
		t.Errorf("the sandbox says %q", got)
	}
	want, err := before.Stat()
	must(t, want, err)
	got, err := os.Stat(fmt.Sprintf("/proc/%d/exe", s.signalSupervisor(id, 0)))
	if !os.SameFile(want, must(t, got, err)) {
		t.Error("the supervisor runs another program than the server's")
	}
}

func TestTheServerIsCalledAgentfense(t *testing.T) {
	s := start(t)
	for file, want := range map[string]string{"comm": "agentfense\n", "cmdline": binary + "\x00serve\x00"} {
		got, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.cmd.Process.Pid, file))
		if string(must(t, got, err)) != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
}
