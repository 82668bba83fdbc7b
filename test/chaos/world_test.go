package chaos_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/wire"
)

// verbLimit bounds every verb: one that takes longer hangs.
const verbLimit = 2 * time.Minute

// roundsOfALife is after how many blows a sandbox is removed.
const roundsOfALife = 15

// world is one sandbox and what surrounds it.
type world struct {
	t      *testing.T
	s      *harness.Sandbox
	random *rand.Rand
	create []string     // flags
	shown  string       // directory of the host that is mounted at shownAt; "": none is
	inside string       // where the files are, "" for the workspace; else a mount that may be written to
	files  string       // directory of the host that has the files
	made   int          // files that were made undisturbed in the scratch directory, which exists with the mount
	kept   bool         // the end of a command applies what it wrote
	server *wire.Server // nil: there is none

	networked bool         // commands connect to hosts
	target    harness.Role // what is struck next if it is there; "": anything
	struck    harness.Role // what was struck last
	egress    map[int]int  // pidfds of egress processes that were seen, by pid

	ended bool // the server was killed
	model *model
	ids   identity
	blows map[string]int // by what was struck and how
	log   []string       // what was done, for who reads a failure
}

func newLocal(t *testing.T) *world { return newWorld(t).mount().connect().publishing() }

func newLimited(t *testing.T) *world {
	testenv.Cgroup(t, "pids")
	w := newWorld(t).mount()
	w.create = append(w.create, "--pids", "300")
	return w
}

func newOrdinary(t *testing.T) *world {
	return newWorld(t, harness.Ordinary).mount().connect().publishing()
}

// publishing has the host see a port of the sandbox.
func (w *world) publishing() *world {
	w.create = append(w.create, "--publish", fmt.Sprint(publishedPort))
	return w
}

// newWritable is a world whose files are in a mount.
func newWritable(t *testing.T) *world {
	w := newWorld(t)
	w.useMount("mode=cow")
	return w
}

// newKept is a world whose files are in a mount and are kept: the end of a command applies what it
// wrote, unless it was killed before.
func newKept(t *testing.T) *world {
	w := newWorld(t)
	w.kept = true
	rules := filepath.Join(t.TempDir(), "kept.yaml")
	text := "version: 1\nrules:\n  - {pattern: /f*, permission: write, apply: keep}\n  - {pattern: \"**\", permission: write}\n"
	if err := os.WriteFile(rules, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	w.useMount("policy=" + rules)
	return w
}

// useMount moves the files to a directory that is a mount, of a mode or with a policy.
func (w *world) useMount(option string) {
	t := w.t
	w.inside, w.files = writableAt, t.TempDir()
	for i := range fileCount {
		err := os.Remove(filepath.Join(w.s.Source, nameOf(i)))
		if err == nil {
			err = os.WriteFile(filepath.Join(w.files, nameOf(i)), []byte(contentOf(0)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.create = []string{"--mount", w.files + ",dst=" + writableAt + ",name=" + writableName + "," + option}
}

// Where a mount that may be written to is, and its name.
const (
	writableAt   = "/opt/writable"
	writableName = "files"
)

// script is a command that works where the files are.
func (w *world) script(text string) []string {
	if w.inside != "" {
		text = "cd " + w.inside + " || exit 1\n" + text
	}
	return []string{"exec", w.s.Name, "--", "sh", "-c", text}
}

// about is a verb about the changes of the files.
func (w *world) about(verb string) []string {
	if w.inside != "" {
		return []string{verb, w.s.Name, "--in", writableName}
	}
	return []string{verb, w.s.Name}
}

func newServed(t *testing.T) *world {
	w := newWorld(t).connect()
	w.serve()
	t.Cleanup(func() {
		_ = w.server.Cmd.Process.Signal(syscall.SIGTERM) // it may have been killed
		_ = w.server.Cmd.Wait()
	})
	return w
}

func newWorld(t *testing.T, options ...harness.Option) *world {
	files := map[string]string{}
	for i := range fileCount {
		files[nameOf(i)] = contentOf(0)
	}
	s := harness.New(t, binary, files, options...)
	return &world{t: t, s: s, files: s.Source, model: newModel(), blows: map[string]int{}, egress: map[int]int{}}
}

// What the sandbox sees of a mounted directory, and where.
const (
	shownAt   = "/opt/shown"
	shownText = "of the host"

	scratchDir = "scratch"
)

// mount has the sandbox show another directory of the host, and have a scratch directory.
func (w *world) mount() *world {
	w.t.Helper()
	testenv.Overlay(w.t)
	w.shown = w.t.TempDir()
	file := filepath.Join(w.shown, "file")
	if err := os.WriteFile(file, []byte(shownText), 0o644); err != nil {
		w.t.Fatal(err)
	}
	w.s.Own(w.shown)
	w.s.Own(file)
	w.create = append(w.create, "--mount", w.shown+":"+shownAt, "--scratch", scratchDir)
	return w
}

// checkMount checks that the sandbox sees the directory whole, and cannot change it.
func (w *world) checkMount() {
	w.t.Helper()
	if w.shown == "" {
		return
	}
	got := w.must("exec", w.s.Name, "--", "sh", "-c", "cd "+shownAt+"; ls -A; cat file; ! echo x 2>/dev/null >file; ! mv file "+w.s.Source+" 2>/dev/null")
	left, err := os.ReadDir(w.shown)
	if err != nil || len(left) != 1 || got != "file\n"+shownText {
		w.fatal("the mount shows %q, and its source has %d entries, %v", got, len(left), err)
	}
}

// scratch strikes while a command works in the scratch directory, and checks that the
// directory has what was made undisturbed, and is mounted anew.
func (w *world) scratch() {
	w.t.Helper()
	if w.shown == "" {
		return
	}
	w.strike(150*time.Millisecond, "exec", w.s.Name, "--", "sh", "-c", "cd "+scratchDir+"; rm -rf struck; mkdir struck; i=0; while [ $i -lt 1000 ]; do echo x >struck/$i; i=$((i+1)); done")
	w.settle()
	got := w.must("exec", w.s.Name, "--", "sh", "-c", fmt.Sprintf(`cd %s; echo x >made%d; ls -d made* | wc -l; grep -c " %s/%[1]s .* overlay " /proc/self/mountinfo`, scratchDir, w.made, w.s.Source))
	w.made++
	if want := fmt.Sprintf("%d\n1\n", w.made); got != want {
		w.fatal("the scratch directory shows %q, want %q", got, want)
	}
	if _, err := os.Lstat(filepath.Join(w.s.Source, scratchDir)); err == nil {
		w.fatal("the scratch directory is in the source")
	}
}

// serve starts the server, also after it was killed.
func (w *world) serve() {
	w.t.Helper()
	cmd := exec.Command(binary, "serve")
	cmd.Env = append(append(os.Environ(), "AGENTFENSE_HOME="+w.s.Home), wire.AnyPorts...)
	cmd.Env = append(cmd.Env, "AGENTFENSE_NETWORK_ALLOW=example.com:80 example.com,intercept www.example.com", "SSL_CERT_FILE="+outside.roots)
	server, err := wire.Serve(cmd, w.s.Home)
	if err != nil {
		w.fatal("serve: %v", err)
	}
	w.server, w.ended = server, false
}

// command is a verb that is not started yet.
func (w *world) command(ctx context.Context, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	cmd := w.s.Command(ctx, args...)
	cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+outside.roots)
	if w.server != nil {
		cmd.Env = append(cmd.Env, "AGENTFENSE_HOME="+w.s.Home+"-client", "AGENTFENSE_ENDPOINT="+w.server.Addr, "AGENTFENSE_TOKEN="+w.server.Token)
	}
	stdout, stderr := &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = time.Second
	return cmd, stdout, stderr
}

// must runs a verb that nobody disturbs: it must succeed.
func (w *world) must(args ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), verbLimit)
	defer cancel()
	cmd, stdout, stderr := w.command(ctx, args...)
	if err := cmd.Run(); err != nil {
		w.fatal("agentfense %.200q: %v, %v\n%s", args, err, ctx.Err(), stderr)
	}
	return stdout.String()
}

// fatal fails the test and says what was done before.
func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	recent := w.log[max(0, len(w.log)-20):]
	w.t.Fatalf("seed %d: %s\ndone before:\n  %s", *seed, fmt.Sprintf(format, args...), strings.Join(recent, "\n  "))
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// live is one life: rounds until it is long enough or the time is over, and the
// end, after which nothing is left.
func (w *world) live(end time.Time) {
	w.made = 0
	w.must(append([]string{"create", "--preset", "full-access", w.s.Name}, w.create...)...)
	w.ids = w.identity()
	for round := 0; round < roundsOfALife && time.Now().Before(end); round++ {
		w.round()
	}
	w.must("rm", "--force", w.s.Name)
	w.nothingLeft(w.ids)
	w.t.Logf("blows: %v", w.blows)
}

// round does one thing, strikes while it is done, and checks.
func (w *world) round() {
	kinds := 10
	switch {
	case w.ids.address() != "":
		kinds = 15
	case w.networked:
		kinds = 13
	}
	switch n := w.random.IntN(kinds); {
	case n < 4:
		w.write()
	case n < 6:
		w.apply()
	case n < 7:
		w.discard()
	case n < 8:
		w.applyWhileWriting()
	case n < 10:
		w.begin()
		w.settle()
		w.checkMount()
		w.scratch()
	case n < 13:
		w.network()
	default:
		w.publish()
	}
	w.settle()
	w.check()
}

// strike runs a verb, strikes one of the processes meanwhile, and returns whether
// the verb succeeded, with what it wrote.
func (w *world) strike(most time.Duration, args ...string) (bool, string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), verbLimit)
	defer cancel()
	cmd, stdout, stderr := w.command(ctx, args...)
	if err := cmd.Start(); err != nil {
		w.fatal("agentfense %.200q: %v", args, err)
	}
	time.Sleep(time.Duration(w.random.Int64N(int64(most))))
	w.blow(cmd.Process.Pid)
	err := cmd.Wait()
	if ctx.Err() != nil {
		w.fatal("agentfense %.200q hangs\n%s", args, stderr)
	}
	w.note("%.60q: %v %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	return err == nil, stdout.String()
}

// blow kills one of the processes, or stops it for a while.
func (w *world) blow(cli int) {
	byRole := map[harness.Role][]int{"command line": {cli}}
	if w.server != nil {
		byRole["server"] = []int{w.server.Cmd.Process.Pid}
	}
	for _, p := range harness.Processes(w.s.Home) {
		byRole[p.Role] = append(byRole[p.Role], p.PID)
		if p.Role == harness.Egress {
			w.keep(p.PID)
		}
	}
	var roles []harness.Role
	for role := range byRole {
		roles = append(roles, role)
	}
	slices.Sort(roles)
	role := roles[w.random.IntN(len(roles))]
	if len(byRole[w.target]) > 0 {
		role = w.target
	}
	w.struck = role
	pid := byRole[role][w.random.IntN(len(byRole[role]))]
	how, pause := "killed", time.Duration(0)
	if w.random.IntN(4) == 0 {
		how, pause = "stopped", time.Duration(w.random.Int64N(int64(200*time.Millisecond)))
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(process)
	w.blows[fmt.Sprint(role, " ", how)]++
	w.note("%s %d %s", role, pid, how)
	if how == "killed" {
		_ = unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0) // it may have ended
		w.ended = w.ended || role == "server"
		return
	}
	_ = unix.PidfdSendSignal(process, unix.SIGSTOP, nil, 0)
	time.Sleep(pause)
	_ = unix.PidfdSendSignal(process, unix.SIGCONT, nil, 0)
}

// serveAgain has the server serve again if it was killed.
func (w *world) serveAgain() {
	if w.ended {
		_ = w.server.Cmd.Wait() // it was killed
		w.note("the server begins again")
		w.serve()
	}
}

// settle has the server serve again if it was killed, and the sandbox stop.
func (w *world) settle() {
	w.serveAgain()
	ctx, cancel := context.WithTimeout(context.Background(), verbLimit)
	defer cancel()
	cmd, _, stderr := w.command(ctx, "stop", w.s.Name)
	err := cmd.Run() // what does not run cannot be stopped
	if ctx.Err() != nil {
		w.fatal("stop hangs: %v\n%s", err, stderr)
	}
}
