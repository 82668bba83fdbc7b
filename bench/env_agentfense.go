package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agentfense/agentfense/bench/host"
)

// agentfense shows the data through the view of a sandbox, with an allow-all
// policy. Every session is a sandbox of its own, with an empty delta, removed
// afterwards.
type agentfense struct {
	disk   *disk
	path   string
	home   string
	mounts []string
	serie  atomic.Int64
	prepared
}

func newAgentfense(d *disk, binary string) candidate {
	a := &agentfense{disk: d, home: d.path("state")}
	err := a.find(binary)
	return candidate{place: a, err: err}
}

// find looks for the binary and the directories a sandbox must be shown for
// the workloads: this program, and the toolchains outside /usr.
func (a *agentfense) find(binary string) error {
	var err error
	if a.path, err = host.FindAgentfense(binary); err != nil {
		return err
	}
	a.mounts = []string{filepath.Dir(a.disk.Self())}
	tools := findTools()
	for _, name := range []string{"go", "cargo"} {
		if tool := tools[name]; tool != "" && !strings.HasPrefix(tool, "/usr/") {
			a.mounts = append(a.mounts, filepath.Dir(filepath.Dir(tool)))
		}
	}
	return os.MkdirAll(a.home, 0o700)
}

func (a *agentfense) Name() string { return agentfenseName }

func (a *agentfense) Open(ctx context.Context, _ []string) (*session, error) {
	return a.OpenFor(ctx, &row{})
}

func (a *agentfense) OpenFor(ctx context.Context, r *row) (*session, error) {
	name, source := a.newName(), a.disk.Source()
	if r.Layers > 0 {
		var err error
		if name, err = a.inLayers(ctx, r.Layers); err != nil {
			return nil, err
		}
	}
	workspace, mounted := source, []string(nil)
	if r.InMount {
		workspace, mounted = a.disk.Other(0), []string{source}
	}
	for i := range r.Mounts {
		mounted = append(mounted, a.disk.Other(i+1))
	}
	args := a.runArgs(name, workspace)
	for _, dir := range mounted {
		args = append(args, "--mount", dir)
	}
	for _, dir := range r.Scratch {
		args = append(args, "--scratch", dir)
	}
	args = append(args, "--")
	cmd := a.command(ctx, append(args, serveCommand(a.disk.Self(), source)...)...)
	return startSession(ctx, cmd, func() error { return a.stop(name) })
}

func (a *agentfense) newName() string { return fmt.Sprintf("bench%d", a.serie.Add(1)) }

func (a *agentfense) runArgs(name, source string) []string {
	args := []string{"run", "--name", name, "--dir", source, "--preset", "full-access", "--env", quietRuntime}
	for _, m := range a.mounts {
		args = append(args, "--mount", m)
	}
	return args
}

func (a *agentfense) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, a.path, args...)
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+a.home)
	cmd.Dir = a.disk.Root
	return cmd
}

// do runs a command of agentfense's to its end, on cleanup too, when the run
// was interrupted.
func (a *agentfense) do(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	out, err := a.command(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("agentfense %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

// stop ends a sandbox if it still runs. Its delta stays until Close: see
// disk.Discard.
func (a *agentfense) stop(name string) error {
	if _, err := os.Stat(filepath.Join(a.home, "sandboxes", name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return a.do(context.Background(), "stop", name)
}

// Close stops and removes every sandbox, whatever happened before.
func (a *agentfense) Close() error {
	entries, err := os.ReadDir(filepath.Join(a.home, "sandboxes"))
	if errors.Is(err, os.ErrNotExist) || len(entries) == 0 {
		return nil
	}
	args := []string{"rm", "--force"}
	for _, e := range entries {
		args = append(args, e.Name())
	}
	return errors.Join(err, a.do(context.Background(), args...))
}

func (a *agentfense) Start(ctx context.Context) *exec.Cmd {
	cmd := a.command(ctx, "run", "--", "true")
	cmd.Dir = a.disk.Source()
	return cmd
}

// detached starts a sandbox that stays until end is called.
func (a *agentfense) detached(ctx context.Context, source string) (name string, end func() error, err error) {
	name = a.newName()
	end = func() error { return a.stop(name) }
	args := append(a.runArgs(name, source), "--detach", "--", "sleep", "3600")
	if err := a.do(ctx, args...); err != nil {
		return "", nil, errors.Join(err, end())
	}
	return name, end, nil
}

// Memory counts every process that has our state directory in its environment,
// and what descends from them: supervisor, bubblewrap, PID 1 inside, and the
// sleeping command.
func (a *agentfense) Memory(ctx context.Context, walked bool) (used int64, err error) {
	if err := a.stopChanged(); err != nil {
		return 0, err
	}
	name, end, err := a.detached(ctx, a.disk.Walked())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if walked {
		if err := a.do(ctx, "exec", name, "--", "find", a.disk.Walked(), "-size", "+1M"); err != nil {
			return 0, err
		}
	}
	time.Sleep(settle)
	return a.memory()
}

func (a *agentfense) memory() (int64, error) {
	procs, err := host.ReadProcesses()
	if err != nil {
		return 0, err
	}
	return procs.With(procs.ByEnv("AGENTFENSE_HOME=" + a.home)).PSS()
}
