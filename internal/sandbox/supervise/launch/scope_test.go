package launch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// fakeManager is a user manager whose busctl is a shell script.
func fakeManager(t *testing.T, script string) userManager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "busctl")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return userManager{busctl: path, env: []string{"XDG_RUNTIME_DIR=/nowhere"}, patience: time.Second}
}

func TestScopeIsAskedForByItsArguments(t *testing.T) {
	got := scopeArgs("agentfense-a-b.scope", "agentfense sandbox a", 42, 5*time.Second)
	want := []string{
		"--user", "--auto-start=no", "--quiet", "--timeout=5", "call",
		"org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "StartTransientUnit",
		"ssa(sv)a(sa(sv))", "agentfense-a-b.scope", "fail",
		"4", "PIDs", "au", "1", "42", "Delegate", "b", "true", "CollectMode", "s", "inactive-or-failed",
		"Description", "s", "agentfense sandbox a", "0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A busctl that is none gets nothing of our environment but the bus, and what it
// says is told in one line without what a terminal would act on.
func TestManagerThatRefuses(t *testing.T) {
	t.Setenv("AGENTFENSE_TEST_SECRET", "secret")
	for name, c := range map[string]struct{ script, want string }{
		"it says why":            {"echo 'Call failed: no such method' >&2; echo more >&2; exit 1", "Call failed: no such method"},
		"it says nothing":        {"exit 3", "busctl: exit status 3"},
		"it speaks to terminals": {`printf '\033[2Jno\a\200way\n' >&2; exit 1`, "[2Jno\ufffdway"},
		"it says much":           {"head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", strings.Repeat("x", maxComplaint)},
		"it sees our secrets":    {`echo "secrets:$AGENTFENSE_TEST_SECRET" >&2; exit 1`, "secrets:"},
	} {
		t.Run(name, func(t *testing.T) {
			err := fakeManager(t, c.script).enter(t.Context(), "box", os.Getpid())
			if !errdefs.Is(err, errdefs.Unsupported) || err.Error() != c.want {
				t.Errorf("%q, want %q", err, c.want)
			}
		})
	}
}

// Neither a manager that hangs, nor one that leaves a child with our pipe, nor one
// that says yes and does nothing holds a start up for long.
func TestManagerThatHangs(t *testing.T) {
	for name, script := range map[string]string{
		"it never answers":            "exec sleep 1000",
		"its child never answers":     "sleep 30 & echo $! >\"$0.child\"; wait",
		"it says yes and does not":    `echo 'o "/org/freedesktop/systemd1/job/1"'`,
		"it answers garbage, quickly": "head -c 1000000 /dev/urandom",
	} {
		t.Run(name, func(t *testing.T) {
			m := fakeManager(t, script)
			t.Cleanup(func() { endChild(t, m.busctl+".child") })
			err := m.enter(t.Context(), "box", os.Getpid())
			if !errdefs.Is(err, errdefs.Deadline) || !strings.Contains(err.Error(), m.patience.String()) {
				t.Errorf("%v, want one that names %s", err, m.patience)
			}
		})
	}
}

// endChild ends the process whose id a script has written to path, if it has.
func endChild(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // it may have ended
	}
}

func TestMoveIsSeen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cgroup")
	unit := "agentfense-a-b.scope"
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"moved":                          {"1:cpu:/\n0::/user.slice/app.slice/" + unit + "\n", true},
		"not yet":                        {"0::/user.slice/session-1.scope\n", false},
		"a longer name":                  {"0::/user.slice/x" + unit + "\n", false},
		"only in a hierarchy of v1":      {"1:name=systemd:/app.slice/" + unit + "\n0::/\n", false},
		"below a group of the same name": {"0::/" + unit + "/x\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			m := userManager{patience: 20 * time.Millisecond}
			if err := m.awaitMove(t.Context(), unit, file); (err == nil) != c.ok {
				t.Errorf("%v, want success: %v", err, c.ok)
			}
		})
	}
	if err := (userManager{}).awaitMove(t.Context(), unit, file+"-gone"); !errdefs.Is(err, errdefs.Unsupported) {
		t.Errorf("of a process that has ended: %v", err)
	}
}

func TestNobodyIsAskedWithoutNeed(t *testing.T) {
	limited := record.Record{Runtime: record.RuntimeDocker}
	limited.Limits.PIDs = 20
	for name, r := range map[string]record.Record{"no limits": {}, "docker": limited} {
		if wantsScope(r) {
			t.Errorf("%s: asks for a scope", name)
		}
	}
}

func TestUserManagerIsFoundByTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	before := busctlPaths
	t.Cleanup(func() { busctlPaths = before })
	busctlPaths = []string{filepath.Join(dir, "no"), filepath.Join(dir, "busctl")}
	if _, err := findUserManager(); err == nil || !strings.Contains(err.Error(), "busctl") {
		t.Errorf("without busctl: %v", err)
	}
	for _, name := range []string{"busctl", "bus"} {
		if _, err := findUserManager(); err == nil {
			t.Errorf("found without %s", name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m, err := findUserManager()
	if diff := cmp.Diff([]string{"XDG_RUNTIME_DIR=" + dir, "LC_ALL=C"}, m.env); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x")
	if m, err = findUserManager(); err != nil || m.env[2] != "DBUS_SESSION_BUS_ADDRESS=unix:path=/x" {
		t.Errorf("%v, %v", m.env, err)
	}
}
