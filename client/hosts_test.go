//go:build linux

package client_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// TestHostsThatLackSomething has the server started on them: it becomes what a
// script makes of the host.
func TestHostsThatLackSomething(t *testing.T) {
	testenv.Root(t)
	testenv.Command(t, "unshare", "setpriv")
	for _, tt := range []struct {
		name, script string
		runtime      client.RuntimeType
		says         string
	}{
		{name: "another device", script: `exec unshare --mount sh -c 'mount --bind /dev/null /dev/fuse; exec "$@"' sh`, says: "/dev/fuse: it is not the FUSE device"},
		{name: "no bubblewrap", script: "PATH=/nowhere exec", says: "bubblewrap is not installed: run: apt install bubblewrap"},
		{name: "a root that may not mount", script: "exec setpriv --bounding-set -sys_admin", says: "this root has no CAP_SYS_ADMIN"},
		{name: "no docker", script: "AGENTFENSE_RUNTIME_DOCKER_HOST=unix:///nowhere/docker exec", runtime: client.Docker, says: "no daemon answers at unix:///nowhere/docker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := ownServer(t)
			program := filepath.Join(t.TempDir(), "agentfense")
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+tt.script+" "+binary+` "$@"`+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			options := []client.LocalOption{client.WithProgram(program)}
			if tt.runtime != "" {
				options = append(options, client.WithRuntime(tt.runtime))
			}
			_, err := client.FromLocal(t.Context(), repository(t, shop), options...)
			if !errors.Is(err, client.ErrPrecondition) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
			if left := existing(t); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			endServer(t, dir)
		})
	}
}

func TestAProgramThatIsNone(t *testing.T) {
	dir := ownServer(t)
	for name, text := range map[string]string{"no executable": "", "no program": "text", "no interpreter": "#!/nowhere/sh\n"} {
		program := filepath.Join(dir, "agentfense")
		mode := os.FileMode(0o700)
		if text == "" {
			mode = 0o600
		}
		if err := errors.Join(os.WriteFile(program, []byte(text), 0o600), os.Chmod(program, mode)); err != nil {
			t.Fatal(err)
		}
		_, err := client.New(t.Context(), client.WithProgram(program))
		if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAServerThatDiesWhileItIsAsked(t *testing.T) {
	dir := ownServer(t)
	box, err := client.FromLocal(t.Context(), repository(t, shop), client.WithPreset("full-access"))
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 2)
	go func() {
		_, err := box.Run(t.Context(), "echo $$ > pid; exec sleep 1000")
		failed <- err
	}()
	go func() {
		x, err := box.Attach(t.Context(), []string{"sleep", "1000"})
		if err == nil {
			_, err = x.Wait()
		}
		failed <- err
	}()
	testenv.Eventually(t, "the command has started", func() bool { return run(t, box, "test -s pid").ExitCode == 0 })
	own, _ := endpoint.FindDefault(dir)
	if err := syscall.Kill(own.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case err := <-failed:
			if !errors.Is(err, client.ErrUnavailable) {
				t.Errorf("a command: %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a command does not end with its server")
		}
	}
	// The next server has what the one before could not remove.
	if err := box.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if ids := existing(t); len(ids) > 0 {
		t.Errorf("left: %s", ids)
	}
	endServer(t, dir)
	if remaining := left(dir); len(remaining) > 0 {
		t.Errorf("left:\n%s", strings.Join(remaining, "\n"))
	}
}

// A socket that takes connections, and that is all.
func TestAServerThatNeverAnswers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}), syscall.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = client.FromLocal(ctx, repository(t, shop), client.WithEndpoint("unix://"+socket))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if late := time.Since(begun); late > 10*time.Second {
		t.Errorf("the caller's context ended %s ago", late)
	}
}
