package docker_test

import (
	"os"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/confine/isolate/docker"
	"github.com/agentfense/agentfense/internal/confine/isolate/isolatetest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestMain(m *testing.M) { isolatetest.Main(m) }

// hostEnv has the address of the suite's daemon for a supervisor to be killed.
const hostEnv = "AGENTFENSE_TEST_DOCKER"

func TestConformance(t *testing.T) {
	testenv.Root(t)
	testenv.Docker(t)
	host := os.Getenv(hostEnv)
	isolatetest.RunImages(t,
		func(testing.TB) isolate.Isolator { return docker.New(docker.Options{Host: host}) },
		func(t *testing.T) func(*isolate.Spec) {
			if host == "" {
				host = testenv.DockerDaemon(t)
				t.Setenv(hostEnv, host)
			}
			return func(s *isolate.Spec) { s.Image = testenv.DockerImage }
		})
}
