//go:build linux

package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/endpoint"
)

// ownServer lets the test have a state directory without a server.
func ownServer(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	t.Setenv("AGENTFENSE_HOME", dir)
	t.Setenv("AGENTFENSE_ENDPOINT", "")
	t.Setenv("AGENTFENSE_BINARY", binary)
	return dir
}

// endServer ends the one server that was started in dir and waits for its end.
func endServer(t *testing.T, dir string) {
	t.Helper()
	own, serves := endpoint.FindOwn(dir)
	if !serves {
		t.Fatal("no server")
	}
	if err := syscall.Kill(own.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); syscall.Kill(own.PID, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server does not end")
		}
	}
}

func TestServerIsStartedOnceForAll(t *testing.T) {
	dir := ownServer(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			c, err := client.New(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := c.Codebase(t.Context(), "cb_0000000000000000"); !errors.Is(err, client.ErrNotFound) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	endServer(t, dir)
	// It says where it is no more, and the next client starts another.
	c, err := client.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	endServer(t, dir)
}

func TestServerThatDoesNotStart(t *testing.T) {
	dir := ownServer(t)
	if err := os.WriteFile(filepath.Join(dir, "server.db"), []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := client.New(t.Context())
	if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "server.db") {
		t.Errorf("a broken database: %v", err)
	}
	t.Setenv("AGENTFENSE_BINARY", "/nowhere/agentfense")
	_, err = client.New(t.Context())
	if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "AGENTFENSE_BINARY") {
		t.Errorf("no program: %v", err)
	}
}

func TestAProgramThatIsTooOld(t *testing.T) {
	dir := ownServer(t)
	program := filepath.Join(dir, "agentfense")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho 'agentfense: unknown flag: --idle-exit (see agentfense serve --help)' >&2; exit 2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AGENTFENSE_BINARY", program)
	_, err := client.New(t.Context())
	if !errors.Is(err, client.ErrVersion) || !strings.Contains(err.Error(), program+" is older than this program: agentfense: unknown flag: --idle-exit") {
		t.Error(err)
	}
}

func TestEndpointsThatWouldGiveTheTokenAway(t *testing.T) {
	for _, address := range []string{"http://build:9000", "ftp://build", "build:x", "unix://relative"} {
		if _, err := client.New(t.Context(), client.WithEndpoint(address), client.WithToken("x")); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
