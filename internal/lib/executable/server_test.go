package executable

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// The test program plays both programs, told apart by the name of its file.
const roleVariable = "EXECUTABLE_TEST_ROLE"

func TestMain(m *testing.M) {
	path, err := ownPath()
	switch {
	case err != nil || os.Getenv(roleVariable) == "":
		os.Exit(m.Run())
	case len(os.Args) > 1 && os.Args[1] == "again":
		fmt.Println("light again, started by one of two:", Runs(os.Getppid()), "and not by init:", !Runs(1))
	case filepath.Base(path) == serverName:
		playServer()
	default:
		version = os.Getenv(roleVariable)
		err := ExecServer()
		fmt.Println("light:", err, "unsupported:", errdefs.Is(err, errdefs.Unsupported))
		os.Exit(1)
	}
}

func playServer() {
	version = "1"
	light, err := Light()
	if err != nil {
		fmt.Println("server:", err)
		os.Exit(1)
	}
	out, err := exec.Command(light, "again").CombinedOutput()
	fmt.Printf("server %q: %s%v, variables %q %q\n", os.Args[1:], out, err, os.Getenv(fdVariable), os.Getenv(buildVariable))
}

func run(t *testing.T, build, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+build)
	out, err := cmd.CombinedOutput()
	if err != nil {
		out = append(out, err.Error()...)
	}
	return string(out)
}

// install copies the test program to path, for everybody to start.
func install(t *testing.T, path string) {
	t.Helper()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
}

const started = `server ["serve" "--x"]: light again, started by one of two: true and not by init: true` + "\n" + `<nil>, variables "" ""` + "\n"

func TestTheServerStartsWithTheSameArgumentsAndFindsTheLightProgram(t *testing.T) {
	for name, server := range map[string]string{"beside": "bin", "in libexec": "libexec/agentfense"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			light := filepath.Join(dir, "bin/agentfense")
			install(t, light)
			install(t, filepath.Join(dir, server, serverName))
			link := filepath.Join(t.TempDir(), "agentfense")
			if err := os.Symlink(light, link); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{light, link} {
				if got := run(t, "1", path, "serve", "--x"); got != started {
					t.Errorf("%s: got %q, want %q", path, got, started)
				}
			}
		})
	}
}

// A variable of the caller's does not stand for what the light program says.
func TestVariablesOfTheCallerCountForNothing(t *testing.T) {
	dir := t.TempDir()
	install(t, filepath.Join(dir, "agentfense"))
	install(t, filepath.Join(dir, serverName))
	t.Setenv(fdVariable, "7")
	t.Setenv(buildVariable, "2")
	if got := run(t, "1", filepath.Join(dir, "agentfense"), "serve", "--x"); got != started {
		t.Errorf("got %q, want %q", got, started)
	}
}

func TestProgramsOfTwoBuildsDoNotWorkTogether(t *testing.T) {
	dir := t.TempDir()
	install(t, filepath.Join(dir, "agentfense"))
	install(t, filepath.Join(dir, serverName))
	got := run(t, "2", filepath.Join(dir, "agentfense"), "serve")
	if !strings.HasPrefix(got, `server: agentfense is of build "2`) || !strings.Contains(got, `agentfense-server of build "1`) || !strings.Contains(got, "install both") {
		t.Errorf("got %q", got)
	}
}

func TestTheServerAloneDoesNotRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), serverName)
	install(t, path)
	const want = "agentfense-server is a part of agentfense: run agentfense instead"
	if got := run(t, "1", path, "serve"); !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAMissingServerSaysWhereItWasLookedFor(t *testing.T) {
	dir := t.TempDir()
	light := filepath.Join(dir, "bin/agentfense")
	install(t, light)
	// It is found neither by the PATH nor in the working directory.
	elsewhere := t.TempDir()
	install(t, filepath.Join(elsewhere, serverName))
	t.Setenv("PATH", elsewhere)
	t.Chdir(elsewhere)
	got := run(t, "1", light, "serve")
	for _, want := range []string{
		"agentfense-server is not installed", filepath.Join(dir, "bin", serverName), filepath.Join(dir, "libexec/agentfense", serverName),
		"make install", "go install github.com/agentfense/agentfense/cmd/...@latest", "unsupported: true",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, without %q", got, want)
		}
	}
}

// startCase changes the two programs before the first one is to start the second.
type startCase struct {
	make func(light, server string) error
	want string // a part of the refusal, empty if it starts
}

func TestAServerThatOthersMayWriteIsNotStarted(t *testing.T) {
	wantStarts(t, map[string]startCase{
		"writable by others":    {func(_, server string) error { return os.Chmod(server, 0o757) }, "may be written by other users (mode 0757)"},
		"writable by its group": {func(_, server string) error { return os.Chmod(server, 0o775) }, "may be written by other users (mode 0775)"},
		"not executable":        {func(_, server string) error { return os.Chmod(server, 0o644) }, "permission denied"},
		"a symbolic link":       {relink, "is not a regular file"},
		"a directory":           {func(_, server string) error { return replace(server, func() error { return os.Mkdir(server, 0o755) }) }, "is not a regular file"},
		"a pipe": {func(_, server string) error {
			return replace(server, func() error { return unix.Mkfifo(server, 0o755) })
		}, "is not a regular file"},
		"no program":       {func(_, server string) error { return os.WriteFile(server, []byte("#"), 0o755) }, "exec format error"},
		"both the group's": {func(light, server string) error { return both(light, server, 0o775) }, ""},
		"both everybody's": {func(light, server string) error { return both(light, server, 0o777) }, "may be written by other users (mode 0777)"},
	})
}

func TestAServerOfAnotherUserIsNotStarted(t *testing.T) {
	testenv.Root(t)
	wantStarts(t, map[string]startCase{
		"another user's":          {func(_, server string) error { return os.Chown(server, 4711, -1) }, "belongs to user 4711"},
		"both another user's":     {func(light, server string) error { return chownBoth(light, server, 4711) }, ""},
		"another group's, too":    {groups, "may be written by other users"},
		"the light one another's": {func(light, _ string) error { return os.Chown(light, 4711, -1) }, ""},
	})
}

func wantStarts(t *testing.T, cases map[string]startCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			light, server := filepath.Join(dir, "agentfense"), filepath.Join(dir, serverName)
			install(t, light)
			install(t, server)
			if err := c.make(light, server); err != nil {
				t.Fatal(err)
			}
			got := run(t, "1", light, "serve", "--x")
			if c.want == "" && got != started {
				t.Errorf("got %q, want %q", got, started)
			}
			if c.want != "" && (!strings.Contains(got, server+": "+c.want) || !strings.Contains(got, "unsupported: true")) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func replace(path string, by func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return by()
}

func relink(_, server string) error {
	if err := os.Rename(server, server+".real"); err != nil {
		return err
	}
	return os.Symlink(server+".real", server)
}

func both(light, server string, mode os.FileMode) error {
	if err := os.Chmod(light, mode); err != nil {
		return err
	}
	return os.Chmod(server, mode)
}

func chownBoth(light, server string, uid int) error {
	if err := os.Chown(light, uid, -1); err != nil {
		return err
	}
	return os.Chown(server, uid, -1)
}

// groups lets a group write the server's program that may not write the light one.
func groups(light, server string) error {
	if err := both(light, server, 0o775); err != nil {
		return err
	}
	if err := os.Chown(server, -1, 4711); err != nil {
		return err
	}
	return os.Chmod(server, 0o775)
}

func TestTheBuildNamesTheVersion(t *testing.T) {
	defer func(was string) { version = was }(version)
	for _, version = range []string{"", "0.3.0+abc"} {
		if want := version; Version() == "" || want != "" && Version() != want || !strings.HasPrefix(Build(), Version()) {
			t.Errorf("version %q: %q, build %q", want, Version(), Build())
		}
	}
}
