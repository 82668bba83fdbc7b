package action_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// programs makes a directory with links to all programs of PATH but those, and returns it.
func programs(t *testing.T, but ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(from) // PATH may name what is absent
		for _, e := range entries {
			_ = os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())) // the first one of a name counts
		}
	}
	for _, name := range but {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// goCaches are the variables by which go finds what it has built already, whatever HOME is.
func goCaches(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS").Output()
	if err != nil {
		t.Fatal(err)
	}
	values := strings.Split(string(out), "\n")
	return []string{"GOCACHE=" + values[0], "GOMODCACHE=" + values[1], "GOPROXY=" + values[2], "GOFLAGS=" + values[3]}
}

// Without the input agentfense the action builds the program, and says what it lacks for it.
func TestTheActionBuildsTheProgram(t *testing.T) {
	r := newRunner(t, narrow, wide)
	caches := goCaches(t)
	out, err := r.step(append(caches, "INPUT_AGENTFENSE=", "INPUT_RUN=echo more >>a.txt")...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	contains(t, read(t, r.output), "changed=1\n")
	if built, err := filepath.Glob(filepath.Join(r.dir, "temp/agentfense-*/bin/agentfense")); err != nil || len(built) != 1 {
		t.Errorf("built: %v, %v", built, err)
	}
	for _, c := range []struct {
		name, want string
		without    []string
	}{
		{"no go", "go is not installed on this runner: add a step actions/setup-go before", []string{"go"}},
		{"no bwrap, and no way to install it", "cannot install bubblewrap and fuse3", []string{"bwrap", "apt-get"}},
	} {
		out, err := r.step(append(caches, "PATH="+programs(t, c.without...), "INPUT_AGENTFENSE=", "INPUT_RUN=echo RAN")...)
		if err == nil || strings.Contains(out, "\nRAN") {
			t.Errorf("%s: the step ran: %s", c.name, out)
		}
		contains(t, out, "::error title=agentfense::"+c.want)
	}
}

// A runner where AppArmor restricts user namespaces is played by programs before the others: id
// says that the user is an ordinary one, cat reads the restriction from a file, and sudo lifts it
// there.
const playedID, playedCat, playedSudo = "#!/bin/sh\necho 1001\n", `#!/bin/sh
[ "$*" != /proc/sys/kernel/apparmor_restrict_unprivileged_userns ] || set -- "$PLAYED/restriction"
exec /bin/cat "$@"
`, `#!/bin/sh
echo "$*" >>"$PLAYED/asked"
[ -e "$PLAYED/refuses" ] && exit 1
[ -e "$PLAYED/pretends" ] || echo 0 >"$PLAYED/restriction"
`

func TestTheActionAllowsUserNamespaces(t *testing.T) {
	const lift = "-n sysctl -q -w kernel.apparmor_restrict_unprivileged_userns=0\n"
	r := newRunner(t, narrow, wide)
	for _, c := range []struct {
		name, environment, restriction string
		is                             string // a file that tells sudo what to do
		asked, want                    string // want is why the step fails, "" if it runs
	}{
		{name: "a machine of GitHub", environment: "github-hosted", restriction: "1", asked: lift},
		{name: "it is lifted already", environment: "github-hosted", restriction: "0"},
		{name: "a kernel without it", environment: "self-hosted"},
		{name: "another machine", environment: "self-hosted", restriction: "1", want: "AppArmor restricts user namespaces on this runner: see docs/action.md, Runners"},
		{name: "an unknown machine", restriction: "1", want: "see docs/action.md, Runners"},
		{name: "sudo refuses", environment: "github-hosted", restriction: "1", is: "refuses", asked: lift, want: "cannot allow user namespaces: sudo failed"},
		{name: "sudo changes nothing", environment: "github-hosted", restriction: "1", is: "pretends", asked: lift, want: "AppArmor still restricts them"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"id": playedID, "cat": playedCat, "sudo": playedSudo} {
				write(t, filepath.Join(dir, name), text)
				if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if c.restriction != "" {
				write(t, filepath.Join(dir, "restriction"), c.restriction+"\n")
			}
			if c.is != "" {
				write(t, filepath.Join(dir, c.is), "")
			}
			// A step that gets as far as the policy does not need to go on.
			out, err := r.step("PATH="+dir+":"+os.Getenv("PATH"), "PLAYED="+dir, "RUNNER_ENVIRONMENT="+c.environment,
				"INPUT_RUN=echo RAN", "INPUT_POLICY=nosuch")
			want := c.want
			if want == "" {
				want = "has no file nosuch"
			}
			contains(t, out, "::error title=agentfense::", want)
			if err == nil || strings.Contains(out, "\nRAN") {
				t.Errorf("the step ran: %s", out)
			}
			if got := read(t, filepath.Join(dir, "asked")); got != c.asked {
				t.Errorf("sudo was asked for %q, want %q", got, c.asked)
			}
		})
	}
}

func TestTheScriptsAreClean(t *testing.T) {
	testenv.Command(t, "shellcheck")
	if out, err := exec.Command("shellcheck", "../../scripts/action", "../../scripts/setup").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
