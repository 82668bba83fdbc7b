//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/agentfense/agentfense/internal/endpoint"
	"github.com/agentfense/agentfense/internal/endpoint/dial"
)

const (
	// startPatience bounds the start of a server.
	startPatience = time.Minute
	// idleExit is how long a server that was started stays with nobody connected.
	idleExit = "1m"
	// interval is how often is looked whether it is there.
	interval = 10 * time.Millisecond
)

// ownServer is the address of the server of the state directory dir, which is
// started if need be: on a socket there, shared by the user's processes, and
// with server.log for its log.
func ownServer(ctx context.Context, dir, program string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, errSlow)
	defer cancel()
	if own, serves := endpoint.FindOwn(dir); serves {
		return own.Address(), nil
	}
	if address := usual(ctx); address != "" {
		return address, nil
	}
	path, err := exec.LookPath(first(program, os.Getenv("AGENTFENSE_BINARY"), "agentfense"))
	if err != nil {
		return "", failure("start server", err.Error()+"; install agentfense, or name it in AGENTFENSE_BINARY, or a server in AGENTFENSE_ENDPOINT", ErrUnavailable, err)
	}
	release, err := startLock(ctx, dir)
	if err != nil {
		return "", failure("start server", err.Error(), ErrUnavailable, err)
	}
	defer release()
	if own, serves := endpoint.FindOwn(dir); serves { // another process has started it meanwhile
		return own.Address(), nil
	}
	return start(ctx, dir, path)
}

// distrust lets it be said once that a server was not asked.
var distrust sync.Once

// usual is the address of a server that is well where one is usually, "" if there
// is none; others may have the port. One that may be of somebody else, to whom
// uploads and a token would be given, is passed over.
func usual(ctx context.Context) (address string) {
	address, doubt := endpoint.FindUsual()
	if doubt == nil {
		if address == "" || !answers(ctx, address) {
			return ""
		}
		return address
	}
	if answers(ctx, endpoint.Usual) {
		distrust.Do(func() { slog.Warn("agentfense: " + doubt.Error() + " or use WithEndpoint") })
	}
	return ""
}

// answers reports whether a server that is well is at an address.
func answers(ctx context.Context, address string) bool {
	const moment = time.Second
	ctx, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	at, err := endpoint.Parse(address, endpoint.Files{})
	if err != nil {
		return false
	}
	conn, _, err := dial.Connect(at)
	if err != nil {
		return false
	}
	defer conn.Close()
	health, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{})
	return err == nil && health.Status == healthv1.HealthCheckResponse_SERVING
}

// startLock lets one process after the other start a server.
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
			return nil, errors.New("another process has been starting one all the time")
		case <-time.After(interval):
		}
	}
}

var (
	errSlow = fmt.Errorf("not ready within %s", startPatience)
	errMute = errors.New("its server does not say where it is")
)

// start starts a server that outlives us and waits until it says where it is.
// One that has just ended may have the state directory a moment longer.
func start(ctx context.Context, dir, program string) (string, error) {
	const operation, held = "start server", "in use by another server"
	for {
		address, said, err := startOnce(ctx, dir, program)
		switch {
		case errors.Is(err, errMute):
			return "", tooOld(program, err.Error())
		case strings.Contains(said, "--idle-exit"):
			return "", tooOld(program, said)
		case errors.Is(err, errSlow):
			return "", failure(operation, program+" serve: "+err.Error()+": "+said, ErrUnavailable)
		case err != nil && ctx.Err() != nil:
			return "", failure(operation, err.Error(), ctx.Err())
		case err != nil:
			return "", failure(operation, err.Error(), ErrUnavailable, err)
		case address != "":
			return address, nil
		case !strings.Contains(said, held) || ctx.Err() != nil:
			return "", failure(operation, said, ErrUnavailable)
		}
		time.Sleep(interval)
	}
}

func tooOld(program, why string) error {
	return failure("start server", program+" is older than this program: "+why+": upgrade it, or name another in AGENTFENSE_BINARY", ErrVersion)
}

// startOnce returns the server's address, or what the program has said instead:
// without an error it has ended.
func startOnce(ctx context.Context, dir, program string) (address, said string, err error) {
	logName := filepath.Join(dir, "server.log")
	log, err := os.OpenFile(logName, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", "", err
	}
	defer log.Close()
	fd, err := unix.MemfdCreate("agentfense-stdout", unix.MFD_CLOEXEC)
	if err != nil {
		return "", "", err
	}
	stdout := os.NewFile(uintptr(fd), "stdout")
	defer stdout.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "serve", "--idle-exit", idleExit)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+dir, "AGENTFENSE_SERVER_GRPC_ADDR=unix://"+filepath.Join(dir, "server.sock"), "AGENTFENSE_SERVER_HTTP_ADDR=")
	cmd.Stdout, cmd.Stderr = stdout, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its log says why
	}()
	address, err = awaitServer(ctx, dir, stdout, ended)
	switch {
	case err != nil:
		endUseless(cmd.Process, ended)
		return "", lastWords(logName, "it has said nothing"), err
	case address == "":
		return "", lastWords(logName, "it ended without a word: "+cmd.ProcessState.String()), nil
	}
	return address, "", nil
}

// lastWords are the last line of a log, or other words if it has none.
func lastWords(logName, without string) string {
	text, err := os.ReadFile(logName)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return first(lines[len(lines)-1], without)
}

// awaitServer returns the address of the server of dir, "" if its program has
// ended. A server says where it is before it says anything on standard output.
func awaitServer(ctx context.Context, dir string, stdout *os.File, ended <-chan struct{}) (address string, err error) {
	for {
		said, err := stdout.Stat()
		if err != nil {
			return "", err
		}
		if own, serves := endpoint.FindOwn(dir); serves {
			return own.Address(), nil
		}
		select {
		case <-ended:
			return "", nil
		default:
		}
		if said.Size() > 0 {
			return "", errMute
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(interval):
		}
	}
}

// endUseless ends a program that is no server for us.
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
