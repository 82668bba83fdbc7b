//go:build linux

// Package localserver finds this user's own server, or starts it. One process at a time starts it,
// and all processes of the user share it. It ends after a minute without a connection.
package localserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

const (
	// startPatience limits the start of a server.
	startPatience = time.Minute
	// idleExit is how long a started server runs without a connection.
	idleExit = "1m"
	// interval is the time between two checks whether it runs.
	interval = 10 * time.Millisecond
)

// Find returns the server of the state directory dir. If none runs, it starts one, on a socket in
// dir, for all processes of the user, with its log in server.log. program is the server's program;
// "": $AGENTFENSE_BINARY, else the agentfense in PATH. Errors: Unavailable; Unsupported for a
// program that is too old; Canceled.
func Find(ctx context.Context, dir, program string) (own endpoint.LocalServer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, errSlow)
	defer cancel()
	if own, serves := endpoint.FindDefault(dir); serves {
		return own, nil
	}
	path, err := exec.LookPath(cmp.Or(program, os.Getenv("AGENTFENSE_BINARY"), "agentfense"))
	if err != nil {
		return own, errdefs.New(errdefs.Unavailable, "%w; install agentfense, or name it in AGENTFENSE_BINARY, or a server in AGENTFENSE_ENDPOINT", err)
	}
	release, err := startLock(ctx, dir)
	if err != nil {
		return own, errdefs.New(errdefs.Unavailable, "%w", err)
	}
	defer release()
	if own, serves := endpoint.FindDefault(dir); serves { // another process started it meanwhile
		return own, nil
	}
	return start(ctx, dir, path)
}

// startLock lets one process at a time start a server.
func startLock(ctx context.Context, dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "start.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, errors.New("another process is starting one and has not finished")
		case <-time.After(interval):
		}
	}
}

var (
	errSlow = fmt.Errorf("not ready within %s", startPatience)
	errMute = errors.New("its server does not advertise its address")
)

// start starts a server that outlives this process, and waits until it advertises its address. A
// server that has just ended may lock the state directory a moment longer.
func start(ctx context.Context, dir, program string) (own endpoint.LocalServer, err error) {
	const held = "in use by another server"
	for {
		own, said, err := startOnce(ctx, dir, program)
		switch {
		case errors.Is(err, errMute):
			return own, tooOld(program, err.Error())
		case strings.Contains(said, "--idle-exit"):
			return own, tooOld(program, said)
		case errors.Is(err, errSlow):
			return own, errdefs.New(errdefs.Unavailable, "%s serve: %w: %s", program, err, said)
		case err != nil && ctx.Err() != nil:
			return own, errdefs.New(errdefs.Canceled, "%w", err)
		case err != nil:
			return own, errdefs.New(errdefs.Unavailable, "%w", err)
		case own.GRPC != "":
			return own, nil
		case !strings.Contains(said, held) || ctx.Err() != nil:
			return own, errdefs.New(errdefs.Unavailable, "%s", said)
		}
		time.Sleep(interval)
	}
}

func tooOld(program, why string) error {
	return errdefs.New(errdefs.Unsupported, "%s is older than this program: %s: upgrade it, or name another in AGENTFENSE_BINARY", program, why)
}

// startOnce returns the server, or the program's last message. Without an error the program has
// ended.
func startOnce(ctx context.Context, dir, program string) (own endpoint.LocalServer, said string, err error) {
	logName := filepath.Join(dir, "server.log")
	log, err := os.OpenFile(logName, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return own, "", err
	}
	defer log.Close()
	fd, err := unix.MemfdCreate("agentfense-stdout", unix.MFD_CLOEXEC)
	if err != nil {
		return own, "", err
	}
	stdout := os.NewFile(uintptr(fd), "stdout")
	defer stdout.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "serve", "--idle-exit", idleExit)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+dir, "AGENTFENSE_SERVER_GRPC_ADDR=unix://"+filepath.Join(dir, "server.sock"), "AGENTFENSE_SERVER_HTTP_ADDR=")
	cmd.Stdout, cmd.Stderr = stdout, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return own, "", err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its log has the reason
	}()
	own, err = awaitServer(ctx, dir, stdout, ended)
	switch {
	case err != nil:
		endUseless(cmd.Process, ended)
		return own, lastWords(logName, "no message in its log"), err
	case own.GRPC == "":
		return own, lastWords(logName, "it ended without a message: "+cmd.ProcessState.String()), nil
	}
	return own, "", nil
}

// lastWords returns the last line of a log, or other words if it is empty.
func lastWords(logName, without string) string {
	text, err := os.ReadFile(logName)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return cmp.Or(lines[len(lines)-1], without)
}

// awaitServer returns the server of dir, the zero value if its program has ended. A server
// advertises its address before it writes to standard output.
func awaitServer(ctx context.Context, dir string, stdout *os.File, ended <-chan struct{}) (own endpoint.LocalServer, err error) {
	for {
		said, err := stdout.Stat()
		if err != nil {
			return own, err
		}
		if own, serves := endpoint.FindDefault(dir); serves {
			return own, nil
		}
		select {
		case <-ended:
			return own, nil
		default:
		}
		if said.Size() > 0 {
			return own, errMute
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return own, context.Cause(ctx)
		case <-time.After(interval):
		}
	}
}

// endUseless ends a program that did not become a usable server.
func endUseless(program *os.Process, ended <-chan struct{}) {
	const patience = 5 * time.Second
	_ = program.Signal(unix.SIGTERM) // an error: it has ended
	select {
	case <-ended:
	case <-time.After(patience):
		_ = program.Kill()
		<-ended
	}
}
