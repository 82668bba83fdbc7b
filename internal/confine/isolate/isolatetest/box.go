package isolatetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/isolate"
)

// patience limits every wait. Only a broken test waits that long.
const patience = 30 * time.Second

// basicEnv is the default environment of commands.
var basicEnv = []string{"PATH=/usr/bin:/bin", "HOME=/home/user", "TERM=dumb"}

// probePath is the path of the test binary inside.
const probePath = "/probe"

// box is a started sandbox.
type box struct {
	t    testing.TB
	view string // host side
	spec isolate.Spec
	proc isolate.Process
	conn *guest.Conn
}

// newSpec returns a spec with an empty view, which is a tmpfs, because the mount table
// would show the host path of a plain directory.
func newSpec(t testing.TB) isolate.Spec {
	t.Helper()
	return specOver(t, tmpfs(t))
}

// specOver returns a spec with a directory as view, and makes the sandbox's user its owner.
func specOver(t testing.TB, view string) isolate.Spec {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := isolate.Spec{
		View: view, Workspace: "/workspace", UID: 1000, GID: 1000,
		InitArgs: []string{guest.InitVerb}, InitEnv: guest.InitEnv,
		Mounts: []isolate.Mount{{Source: self, Target: probePath}},
		Stderr: os.Stderr,
	}
	if os.Geteuid() == 0 {
		spec.HostUID, spec.HostGID = hostUser, hostUser
		if err := os.Chown(view, hostUser, hostUser); err != nil {
			t.Fatal(err)
		}
	}
	if images != nil {
		spec.UID, spec.GID = hostUser, hostUser
		spec.ID, spec.Dir = strings.ToLower(rand.Text()), t.TempDir()
		images(&spec)
	}
	return spec
}

// tmpfs mounts a tmpfs below a directory that only this user may search.
func tmpfs(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return mountTmpfs(t, dir)
}

func mountTmpfs(t testing.TB, dir string) string {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// start starts the sandbox of spec and ends it with the test.
func start(t testing.TB, factory Factory, spec isolate.Spec) *box {
	t.Helper()
	b, err := tryStart(t, factory, spec)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func tryStart(t testing.TB, factory Factory, spec isolate.Spec) (*box, error) {
	t.Helper()
	ours, theirs, err := guest.Pair()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	spec.Guest = theirs
	proc, err := factory(t).Start(ctx, spec)
	if err != nil {
		ours.Close()
		return nil, err
	}
	b := &box{t: t, view: spec.View, spec: spec, proc: proc, conn: guest.NewConn(ours, nil)}
	t.Cleanup(func() {
		proc.Kill()
		if err := proc.Wait(); err != nil {
			t.Error(err)
		}
		b.conn.Close()
	})
	if err := b.conn.Ready(ctx); err != nil {
		proc.Kill()
		return nil, errors.Join(err, proc.Wait())
	}
	return b, nil
}

// simple starts a sandbox with the default spec.
func simple(t testing.TB, factory Factory) *box {
	t.Helper()
	return start(t, factory, newSpec(t))
}

// running is a command with its output.
type running struct {
	*guest.Exec
	t      testing.TB
	stdin  *os.File
	stdout *os.File
	stderr *os.File
}

// begin starts a command with pipes.
func (b *box) begin(command guest.Command) *running {
	b.t.Helper()
	r, err := b.tryBegin(command)
	if err != nil {
		b.t.Fatalf("%q: %v", command.Argv, err)
	}
	return r
}

func (b *box) tryBegin(command guest.Command) (*running, error) {
	b.t.Helper()
	r := &running{t: b.t}
	ends := []**os.File{&r.stdin, &r.stdout, &r.stderr}
	for i := range command.Files {
		read, write, err := os.Pipe()
		if err != nil {
			b.t.Fatal(err)
		}
		if i == 0 {
			command.Files[i], *ends[i] = read, write
		} else {
			command.Files[i], *ends[i] = write, read
		}
	}
	defer func() {
		for _, f := range command.Files {
			f.Close()
		}
	}()
	if command.Env == nil {
		command.Env = basicEnv
	}
	command.TTY = -1
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if r.Exec, err = b.conn.Exec(ctx, command, nil); err != nil {
		return nil, err
	}
	b.t.Cleanup(func() {
		for _, end := range ends {
			(*end).Close()
		}
	})
	return r, nil
}

// line reads a line that the command writes to stdout.
func (r *running) line() string {
	r.t.Helper()
	r.stdout.SetReadDeadline(time.Now().Add(patience))
	defer r.stdout.SetReadDeadline(time.Time{})
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := r.stdout.Read(one); err != nil {
			rest, _ := io.ReadAll(r.stderr)
			r.t.Fatalf("stdout ended after %q: %v; stderr: %s", line, err, rest)
		}
		if one[0] == '\n' {
			return string(line)
		}
		line = append(line, one[0])
	}
}

// wait waits for the command's end.
func (r *running) wait() guest.Exit {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	exit, err := r.Wait(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return exit
}

// gone waits until no process of the exec is left.
func (r *running) gone() {
	r.t.Helper()
	select {
	case <-r.Done():
	case <-time.After(patience):
		r.t.Fatal("descendants live on")
	}
}

// run runs a command to its end and returns what it wrote and its status.
func (b *box) run(argv ...string) (stdout, stderr string, exit guest.Exit) {
	b.t.Helper()
	r := b.begin(guest.Command{Argv: argv, Dir: "/"})
	r.stdin.Close()
	errs := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(r.stderr)
		errs <- text
	}()
	out, err := io.ReadAll(r.stdout)
	if err != nil {
		b.t.Fatal(err)
	}
	text := <-errs
	return string(bytes.TrimSpace(out)), string(bytes.TrimSpace(text)), r.wait()
}

// must runs a shell script that must succeed and returns its output.
func (b *box) must(script string) string {
	b.t.Helper()
	out, text, exit := b.run("sh", "-c", script)
	if exit.Code != 0 || exit.Signal != 0 {
		b.t.Fatalf("%s: %+v: %s", script, exit, text)
	}
	return out
}

// refuse runs a shell script that must fail with want on stderr.
func (b *box) refuse(script, want string) {
	b.t.Helper()
	out, text, exit := b.run("sh", "-c", script)
	if exit.Code == 0 || !strings.Contains(text, want) {
		b.t.Errorf("%s: got %+v %q %q, want a failure with %q", script, exit, out, text, want)
	}
}
