package docs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// limit is how long a wait may take until it has failed.
const limit = 8 * time.Minute

// world is what somebody has who follows a document: a home, an empty
// directory, and the program on the PATH unless the document is of those that
// begin before it is installed. When the test ends nothing of it may be left
// running or mounted.
type world struct {
	t          *testing.T
	home, work string
	state      string // agentfense's directory
	env        []string
}

func newWorld(t *testing.T, document string) *world {
	t.Helper()
	testenv.FUSE(t)
	testenv.Bwrap(t)
	w := &world{t: t, home: t.TempDir(), work: t.TempDir(), state: filepath.Join(t.TempDir(), "state")}
	path := systemFirst(os.Getenv("PATH"))
	if !strings.HasPrefix(document, "docs/quickstart/") { // which install it
		path = filepath.Dir(binary) + ":" + path
	}
	w.env = slices.Concat(ordinary(os.Environ()), caches(t), []string{
		"HOME=" + w.home, "PATH=" + path + ":" + filepath.Join(w.home, ".local/bin"), "AGENTFENSE_HOME=" + w.state, "NO_COLOR=1",
	})
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	furniture := map[string]string{
		filepath.Join(w.home, ".gitconfig"): "[advice]\n\tdetachedHead = false\n[safe]\n\tdirectory = *\n[url \"" + here + "\"]\n\tinsteadOf = https://github.com/agentfense/agentfense\n",
	}
	if document == "README.md" {
		const agent = "#!/bin/sh\necho fixed >> notes\n"
		furniture[filepath.Join(w.work, "your-agent")] = agent
		furniture[filepath.Join(w.home, ".local/bin/your-agent")] = agent
	}
	if document == "docs/agents.md" {
		furniture[filepath.Join(w.home, ".local/bin/claude")] = "#!/bin/sh\necho fixed >> notes\n"
		furniture[filepath.Join(w.home, ".local/bin/my-agent")] = "#!/bin/sh\necho my-agent: $1\n"
		furniture[filepath.Join(w.work, "my-project/notes")] = "broken\n"
	}
	for path, content := range furniture {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(w.leave)
	return w
}

// systemFirst puts the system's directories before those of a home, whose version
// managers have programs that are others inside a sandbox: a document shows what
// somebody without them sees.
func systemFirst(path string) string {
	var system, others []string
	for _, dir := range filepath.SplitList(path) {
		if strings.HasPrefix(dir, "/usr/") || strings.HasPrefix(dir, "/bin") || strings.HasPrefix(dir, "/sbin") {
			system = append(system, dir)
		} else {
			others = append(others, dir)
		}
	}
	return strings.Join(append(system, others...), ":")
}

// ordinary leaves out what would make the program another than a reader's.
func ordinary(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool { return strings.HasPrefix(variable, "AGENTFENSE_") })
}

// caches are where go has what it downloaded and built, which it would look for
// in the home.
func caches(t *testing.T) []string {
	t.Helper()
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	values := strings.Split(string(out), "\n")
	for i, name := range names {
		names[i] = name + "=" + values[i]
	}
	return names
}

// command is a program that is not started yet; what it starts ends with it.
func (w *world) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), limit)
	w.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = w.work, w.env, 5*time.Second
	return cmd
}

// play types the steps into one shell and returns what each showed.
func (w *world) play(steps []step) []string {
	w.t.Helper()
	const end = "--end of step--"
	var script strings.Builder
	for _, s := range steps {
		// The step's status is kept for a following `echo $?`.
		fmt.Fprintf(&script, "%s\n__status=$?; echo '%s'; (exit $__status)\n", s.command, end)
	}
	out, err := w.command("sh", "-c", "exec 2>&1\n"+script.String()).Output()
	shown := strings.Split(string(out), end+"\n")
	if len(shown) <= len(steps) {
		w.t.Fatalf("%v after:\n%s", err, out)
	}
	return shown[:len(steps)]
}

// leave ends what goes on by itself, the server that a client has started and
// sandboxes that were detached, and waits until no process is left.
func (w *world) leave() {
	if text, err := os.ReadFile(filepath.Join(w.state, "server.json")); err == nil {
		var server struct{ PID int }
		if err := json.Unmarshal(text, &server); err != nil {
			w.t.Error(err)
		} else if err := syscall.Kill(server.PID, syscall.SIGTERM); err != nil {
			w.t.Errorf("end the server: %v", err)
		}
	}
	for _, name := range w.sandboxes() {
		if out, err := w.command(binary, "stop", name).CombinedOutput(); err != nil {
			w.t.Errorf("stop %s: %v: %s", name, err, out)
		}
	}
	testenv.Eventually(w.t, "no process is left", func() bool { return len(processesOf(w.state)) == 0 })
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), w.state) {
		w.t.Errorf("a mount below %s is left: %v\n%s", w.state, err, mounts)
	}
}

// sandboxes are the names of those that run.
func (w *world) sandboxes() []string {
	controls, err := filepath.Glob(filepath.Join(w.state, "sandboxes", "*", "control"))
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, control := range controls {
		names = append(names, filepath.Base(filepath.Dir(control)))
	}
	return names
}

// processesOf returns the command lines of those that work for a state
// directory.
func processesOf(state string) []string {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for _, path := range all {
		environ, err := os.ReadFile(path)
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), "AGENTFENSE_HOME="+state) {
			continue // it is gone, or another's
		}
		pid := filepath.Base(filepath.Dir(path))
		if n, err := strconv.Atoi(pid); err == nil && n != os.Getpid() {
			line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			found = append(found, pid+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
