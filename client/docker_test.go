//go:build linux

package client_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/wire"
)

// A container is a sandbox like any other: the same tests, on a server whose
// default runtime is docker.
func TestOnDocker(t *testing.T) {
	testenv.FUSE(t)
	testenv.Docker(t)
	host, home := testenv.DockerDaemon(t), t.TempDir()
	cmd := exec.Command(binary, "serve")
	cmd.Env = slices.Concat(os.Environ(), wire.AnyPorts, []string{
		"AGENTFENSE_HOME=" + home, "AGENTFENSE_RUNTIME_TYPE=docker", "AGENTFENSE_RUNTIME_DOCKER_HOST=" + host,
		"AGENTFENSE_RUNTIME_DOCKER_DEFAULT_IMAGE=" + testenv.DockerImage,
		"AGENTFENSE_NETWORK_ALLOW=example.com *.example.org",
	})
	cmd.Stderr = os.Stderr
	server, err := wire.Serve(cmd, home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("AGENTFENSE_HOME", home)
	t.Setenv("AGENTFENSE_ENDPOINT", server.Addr)
	for name, test := range map[string]func(*testing.T){
		"the policy, review and apply": TestCommandSeesThePolicyAndItsChangesAreReviewed,
		"rules of a live sandbox":      TestRulesOfALiveSandboxChange,
		"streams":                      TestStreamsAreApartAndWhole,
		"sessions":                     TestSessionKeepsItsState,
		"an upload":                    TestDirectoryIsUploadedWhereItIsAskedFor,
		"a program that is talked to":  TestProgramIsTalkedWith,
		"a terminal":                   TestProgramHasATerminal,
		"the ends of programs":         TestProgramEndsWithWhoAttached,
		"detached commands":            TestCommandsThatAreDetached,
		"files":                        TestFilesAreWhatACommandSees,
		"a file system":                TestViewIsAFileSystem,
		"hosts":                        TestHostsAreGrantedAndRevoked,
		"errors":                       TestNothingStaysAfterAnError,
		"a canceled beginning":         TestNothingStaysAfterACancellation,
	} {
		t.Run(name, test)
	}
	t.Run("it is docker", func(t *testing.T) {
		info, err := local(t, "agent-safe", nil).Info(t.Context())
		if err != nil || info.Runtime != client.Docker || info.Image != testenv.DockerImage {
			t.Errorf("%+v %v", info, err)
		}
	})
	out, err := exec.Command("docker", "--host", host, "ps", "--all", "--quiet").Output()
	if err != nil || strings.TrimSpace(string(out)) != "" {
		t.Errorf("containers are left: %s %v", out, err)
	}
}
