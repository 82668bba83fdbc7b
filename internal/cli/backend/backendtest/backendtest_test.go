package backendtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/cli/backend/backendtest"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/cli/remote"
	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/wire"
)

var binary string

func TestMain(m *testing.M) { harness.Main(m, &binary, harness.BuildWithServer) }

// home is a new state directory.
func home(t *testing.T) *record.Home {
	t.Helper()
	h, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// root is a new directory, the path of which has no symbolic links.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLocal(t *testing.T) {
	testenv.FUSE(t)
	testenv.Bwrap(t)
	launch.UseProgram(binary)
	h := home(t)
	backendtest.Suite{Backend: local.New(h, os.Getenv, false), Home: h, Root: root(t)}.Run(t)
}

func TestRemote(t *testing.T) {
	testenv.FUSE(t)
	testenv.Bwrap(t)
	served := home(t).Dir()
	roots := root(t)
	config := filepath.Join(served, "server.yaml")
	if err := os.WriteFile(config, []byte("mounts: {roots: [{path: "+roots+", writable: true}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "serve", "--config", config)
	cmd.Env = append(os.Environ(), append([]string{"AGENTFENSE_HOME=" + served}, wire.AnyPorts...)...)
	cmd.Stderr = t.Output()
	server, err := wire.Serve(cmd, served)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	at, err := endpoint.Parse(server.Addr, endpoint.Files{})
	if err != nil {
		t.Fatal(err)
	}
	at.Token = server.Token
	client, err := remote.Dial(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	h := home(t)
	open := func() (*record.Home, error) { return h, nil }
	backendtest.Suite{Backend: remote.New(client, open, os.Getenv), Home: h, IsServer: true, Root: roots}.Run(t)
}
