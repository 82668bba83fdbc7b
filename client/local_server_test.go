//go:build linux

package client_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/testenv"
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
	signalServer(t, dir, syscall.SIGTERM)
}

// signalServer ends it by a signal.
func signalServer(t *testing.T, dir string, by syscall.Signal) {
	t.Helper()
	own, serves := endpoint.FindDefault(dir)
	if !serves {
		t.Fatal("no server")
	}
	if err := syscall.Kill(own.PID, by); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the server has ended", func() bool { return syscall.Kill(own.PID, 0) != nil })
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

// fake makes a program in dir of a shell's command, which notes its process.
func fake(t *testing.T, dir, command string) (program string) {
	t.Helper()
	program = filepath.Join(dir, "fake")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho $$ >"+dir+"/pid\n"+command+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return program
}

// wantEnded fails if the process of a fake is still there.
func wantEnded(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the program is still there: %v", err)
	}
}

func TestProgramsThatAreNoServer(t *testing.T) {
	for _, tt := range []struct {
		name, command string
		want          error
		says          string
	}{
		{"one that speaks and stays", "echo 0.0.1; exec sleep 1000", client.ErrVersion, "is older than this program: its server does not advertise its address"},
		{"one that ends without a word", "exit 3", client.ErrUnavailable, "it ended without a message: exit status 3"},
		{"one that is killed", "kill -9 $$", client.ErrUnavailable, "it ended without a message: signal: killed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := ownServer(t)
			_, err := client.New(t.Context(), client.WithProgram(fake(t, dir, tt.command)))
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Error(err)
			}
			wantEnded(t, dir)
		})
	}
}

// The program is silent until its caller has had enough.
func TestTheEndOfTheContextEndsAProgramThatIsNoServer(t *testing.T) {
	dir := ownServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	program := fake(t, dir, "exec sleep 1000")
	go func() {
		defer cancel()
		for {
			if text, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil && len(text) > 0 {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := client.New(ctx, client.WithProgram(program)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wantEnded(t, dir)
}

func TestAStateDirectoryWhosePathIsNoUTF8(t *testing.T) {
	t.Setenv("AGENTFENSE_HOME", ownServer(t)+"/\xff")
	_, err := client.New(t.Context())
	if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), `/\xff": the path is not UTF-8: set AGENTFENSE_HOME`) {
		t.Error(err)
	}
}

// What a server that was killed had goes by way of the next one, which may be
// there already.
func TestDestroyAfterTheDeathOfTheServer(t *testing.T) {
	dir := ownServer(t)
	box, err := client.FromLocal(t.Context(), repository(t, shop))
	if err != nil {
		t.Fatal(err)
	}
	signalServer(t, dir, syscall.SIGKILL)
	before := existing(t)
	if err := box.Destroy(t.Context()); err != nil || len(before) != 2 {
		t.Errorf("%v, of %s", err, before)
	}
	if ids := existing(t); len(ids) > 0 {
		t.Errorf("left: %s", ids)
	}
	endServer(t, dir)
}

func TestEndpointsThatWouldGiveTheTokenAway(t *testing.T) {
	for _, address := range []string{"http://build:9000", "ftp://build", "build:x", "unix://relative"} {
		if _, err := client.New(t.Context(), client.WithEndpoint(address), client.WithToken("x")); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
