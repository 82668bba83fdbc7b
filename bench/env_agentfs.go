package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"

	"github.com/agentfense/agentfense/bench/host"
)

// agentfs is Turso's copy-on-write file system for agents: `agentfs run` shows
// the current directory as an overlay whose delta is a SQLite database below
// HOME (its MANUAL.md).
type agentfs struct {
	disk  *disk
	path  string
	serie atomic.Int64
}

func newAgentfs(d *disk) candidate {
	path, err := host.LookPath("agentfs")
	return candidate{place: &agentfs{disk: d, path: path}, optional: true, err: err}
}

func (a *agentfs) Name() string { return "agentfs" }

func (a *agentfs) Open(ctx context.Context, _ []string) (*session, error) {
	home, err := a.disk.Fresh(a.Name())
	if err != nil {
		return nil, err
	}
	source := a.disk.Source()
	args := append(a.runArgs(), serveCommand(a.disk.Self(), source)...)
	cmd := exec.CommandContext(ctx, a.path, args...)
	cmd.Dir = source
	cmd.Env = plainEnv("HOME=" + home)
	return startSession(ctx, cmd)
}

func (a *agentfs) runArgs() []string {
	return []string{"run", "--session", fmt.Sprintf("bench%d", a.serie.Add(1))}
}

func (a *agentfs) Start(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, a.path, append(a.runArgs(), "true")...)
	cmd.Dir = a.disk.Source()
	cmd.Env = append(os.Environ(), "HOME="+a.disk.path(a.Name()))
	return cmd
}
