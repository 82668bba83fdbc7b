package launch

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/confine/cgroup"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// An ordinary user's supervisor whose limits no cgroup around it can hold is
// put into a scope of its own by the systemd user manager, with Delegate=yes:
// as if systemd-run --user --scope had started agentfense. The starter asks,
// from outside of the supervisor's user namespace. What the scope is good for
// the supervisor finds out for itself (package cgroup).

// ScopeArgument tells a supervisor that its starter asks for a scope.
const ScopeArgument = "scope"

// ScopeFD tells such a supervisor when that is done: it ends, after the reason
// if there is no scope.
const ScopeFD = 5

// scopePatience bounds the call, and the move that follows. A user manager answers in milliseconds.
const scopePatience = 5 * time.Second

// scopePoll is how often the starter looks whether the supervisor was moved. The
// manager has answered by then, and only has to write a file.
const scopePoll = time.Millisecond

// maxComplaint bounds what is told of a manager's refusal.
const maxComplaint = 200

// busctlPaths are where the D-Bus client of systemd is. The PATH does not count.
var busctlPaths = []string{"/usr/bin/busctl", "/bin/busctl", "/run/current-system/sw/bin/busctl"}

// wantsScope reports whether the user manager is to be asked for a scope: an
// ordinary user has limits that no cgroup holds here, and one on v2 could.
func wantsScope(r record.Record) bool {
	limits := GroupLimits(r)
	if os.Geteuid() == 0 || r.Runtime == record.RuntimeDocker || limits.IsZero() {
		return false
	}
	host, err := cgroup.Detect()
	return err == nil && host.DelegationHelps(limits)
}

// userManager is how to reach the systemd manager of a user.
type userManager struct {
	busctl   string
	env      []string
	patience time.Duration
}

// findUserManager looks for the bus and its client, by the environment of this
// process. Errors: Unsupported.
func findUserManager() (userManager, error) {
	m := userManager{patience: scopePatience}
	for _, path := range busctlPaths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			m.busctl = path
			break
		}
	}
	if m.busctl == "" {
		return m, errdefs.New(errdefs.Unsupported, "busctl, a program of systemd, is not installed")
	}
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = filepath.Join("/run/user", strconv.Itoa(os.Geteuid()))
	}
	m.env = []string{"XDG_RUNTIME_DIR=" + dir, "LC_ALL=C"}
	if address := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); address != "" {
		m.env = append(m.env, "DBUS_SESSION_BUS_ADDRESS="+address)
	} else if _, err := os.Stat(filepath.Join(dir, "bus")); err != nil {
		return m, errdefs.New(errdefs.Unsupported, "the user has no D-Bus; a login session has one")
	}
	return m, nil
}

// CheckUserManager reports why a start would not ask the systemd user manager for
// a scope. Errors: Unsupported.
func CheckUserManager() error {
	_, err := findUserManager()
	return err
}

// scopeArgs ask for a scope of that name with process pid in it. A scope that
// failed leaves nothing behind.
func scopeArgs(unit, description string, pid int, patience time.Duration) []string {
	return []string{
		"--user", "--auto-start=no", "--quiet", fmt.Sprintf("--timeout=%d", max(1, int(patience.Seconds()))), "call",
		"org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "StartTransientUnit",
		"ssa(sv)a(sa(sv))", unit, "fail", "4",
		"PIDs", "au", "1", strconv.Itoa(pid),
		"Delegate", "b", "true",
		"CollectMode", "s", "inactive-or-failed",
		"Description", "s", description,
		"0",
	}
}

// enter puts process pid into a new scope and returns when it is there.
// Errors: Unsupported; Deadline.
func (m userManager) enter(ctx context.Context, id string, pid int) error {
	calling, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	unit := fmt.Sprintf("agentfense-%s-%s.scope", id, strings.ToLower(rand.Text()[:8]))
	cmd := exec.CommandContext(calling, m.busctl, scopeArgs(unit, "agentfense sandbox "+id, pid, m.patience)...)
	cmd.Env, cmd.Dir = m.env, "/"
	cmd.WaitDelay = m.patience / 10
	complaint := &headWriter{left: maxComplaint}
	cmd.Stderr = complaint
	err := cmd.Run()
	switch {
	case calling.Err() != nil:
		return errdefs.New(errdefs.Deadline, "it did not answer within %s", m.patience)
	case err != nil:
		return errdefs.New(errdefs.Unsupported, "%s", complaint.orElse(err))
	}
	return m.awaitMove(ctx, unit, fmt.Sprintf("/proc/%d/cgroup", pid))
}

// awaitMove returns when the cgroup file of a process names the unit: the
// manager answers before it has moved anything.
func (m userManager) awaitMove(ctx context.Context, unit, file string) error {
	ctx, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	tick := time.NewTicker(scopePoll)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(file)
		if err != nil {
			return errdefs.New(errdefs.Unsupported, "the process for it has ended")
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "0::") && strings.HasSuffix(strings.TrimSpace(line), "/"+unit) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errdefs.New(errdefs.Deadline, "it made no scope within %s", m.patience)
		case <-tick.C:
		}
	}
}

// headWriter keeps the beginning of what is written.
type headWriter struct {
	text bytes.Buffer
	left int
}

func (w *headWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.left)
	w.text.Write(b[:n])
	w.left -= n
	return len(b), nil
}

// orElse is the first line of what was written, without what a terminal would
// act on, or err where there is none.
func (w *headWriter) orElse(err error) string {
	line, _, _ := strings.Cut(strings.TrimSpace(w.text.String()), "\n")
	line = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return -1
		}
		return r
	}, line)
	if line == "" {
		return "busctl: " + err.Error()
	}
	return line
}

// scopeRequest is a starter's question for a scope; nil where none is asked for.
type scopeRequest struct {
	id         string
	told, tell *os.File // told is the supervisor's end
	cancel     context.CancelFunc
	asked      sync.WaitGroup
}

// newScopeRequest makes what the supervisor of a sandbox waits on, if it is to
// be put into a scope.
func newScopeRequest(record record.Record) (*scopeRequest, error) {
	if !wantsScope(record) {
		return nil, nil
	}
	told, tell, err := os.Pipe()
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "supervisor: %w", err)
	}
	return &scopeRequest{id: string(record.ID), told: told, tell: tell, cancel: func() {}}, nil
}

// addTo lets the supervisor wait for the answer.
func (r *scopeRequest) addTo(cmd *exec.Cmd) {
	if r == nil {
		return
	}
	cmd.Args = append(cmd.Args, ScopeArgument)
	cmd.ExtraFiles = append(cmd.ExtraFiles, r.told)
}

// run asks for the scope of process pid, in the background, and tells the
// supervisor.
func (r *scopeRequest) run(ctx context.Context, pid int) {
	if r == nil {
		return
	}
	ctx, r.cancel = context.WithCancel(ctx)
	r.asked.Go(func() {
		defer r.tell.Close()
		manager, err := findUserManager()
		if err == nil {
			err = manager.enter(ctx, r.id, pid)
		}
		if err != nil {
			_, _ = io.WriteString(r.tell, err.Error()) // it may have ended
		}
	})
}

// end returns when nobody asks any more: the process's id may then be reused.
func (r *scopeRequest) end() {
	if r == nil {
		return
	}
	r.cancel()
	r.asked.Wait()
	r.told.Close()
	r.tell.Close()
}

// WithoutScope adds what was tried to the reason why a limit does not hold.
func WithoutScope(err error, tried string) error {
	if tried == "" || !errdefs.Is(err, errdefs.Unsupported) {
		return err
	}
	return errdefs.New(errdefs.Unsupported, "%w; %s", err, tried)
}
