package network_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

func TestDockerSpike(t *testing.T) {
	internet(t)
	testenv.Docker(t)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_HOST", testenv.DockerDaemon(t))
	s := harness.New(t, binary, nil)
	r := s.RunProgram(reachOut, []string{"1"}, "--allow-net", "example.com", "--runtime", "docker", "--image", testenv.DockerImage)
	t.Log(r)
	r = s.Agentfense("exec", s.Name, "--", "sh", "-c", "cat /etc/resolv.conf /etc/hosts; cat /proc/net/if_inet6 /proc/net/dev; ping -c1 -W1 8.8.8.8; cat /proc/sys/net/ipv6/conf/*/disable_ipv6 /proc/sys/net/ipv4/ip_unprivileged_port_start; AGENTFENSE_TEST_PROGRAM=resolve /opt/program")
	t.Log(r)
	r = s.Agentfense("audit", s.Name)
	t.Log(r)
}
