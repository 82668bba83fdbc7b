package control_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// dockerCommand runs the docker client and returns what it prints.
func dockerCommand(t *testing.T, host string, args ...string) string {
	t.Helper()
	cmd := exec.Command("docker", append([]string{"--host", host}, args...)...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, complaint.String())
	}
	return strings.TrimSpace(string(out))
}

// hostileImage is an image that does all it can by its configuration.
func hostileImage(t *testing.T, host string) string {
	t.Helper()
	const name = "agentfense-hostile:latest"
	open := t.TempDir()
	if err := errors.Join(os.Chmod(open, 0o777), os.WriteFile(open+"/planted", []byte("planted\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	id := dockerCommand(t, host, "create", testenv.DockerImage, "true")
	dockerCommand(t, host, "cp", open, id+":/volume")
	dockerCommand(t, host, "commit",
		"--change", `ENTRYPOINT ["sh", "-c", "echo entrypoint >/workspace/marker; exec \"$@\"", "sh"]`,
		"--change", `CMD ["sh", "-c", "echo command >/workspace/marker"]`,
		"--change", `HEALTHCHECK --interval=1s CMD echo health >/workspace/marker`,
		"--change", `VOLUME /volume`, "--change", `VOLUME /workspace`,
		"--change", `USER 0:0`, "--change", `WORKDIR /volume`,
		"--change", `ENV LD_PRELOAD=/volume/evil.so BASH_ENV=/volume/evil PATH=/volume:/bin GODEBUG=asyncpreemptoff=1`,
		id, name)
	dockerCommand(t, host, "rm", id)
	return name
}

// Of an image only its files are used: none of the commands, users, variables
// and volumes of its configuration.
func TestImageHasNoSay(t *testing.T) {
	testenv.Docker(t)
	host := testenv.DockerDaemon(t)
	t.Setenv("DOCKER_HOST", host)
	image := hostileImage(t, host)
	box := harness.New(t, binary, map[string]string{"kept": "kept\n"})
	r := box.Agentfense("run", "--runtime", "docker", "--image", image, "--preset", "full-access", "--name", box.Name, "--",
		"sh", "-c", `ls; id -u; pwd; env; tr '\0' '\n' </proc/1/environ; sleep 1.5; ls; grep -E 'Cap(Eff|Bnd|Prm)|Seccomp:|NoNewPrivs' /proc/self/status
grep ' /volume ' /proc/mounts; cat /volume/* 2>/dev/null
for f in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /sys/kernel/uevent_helper; do { echo x >$f; } 2>/dev/null && echo "$f opens"; done
head -c1 /proc/kcore 2>/dev/null && echo /proc/kcore opens
find / -name 'docker*.sock' 2>/dev/null; mount -t tmpfs x /mnt 2>/dev/null && echo mounts; mknod /tmp/d b 8 0 2>/dev/null && echo devices`)
	if r.Code != 0 && r.Code != 1 {
		t.Fatalf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, word := range []string{"marker", "evil", "asyncpreemptoff", "planted", "opens", ".sock", "mounts\n", "devices"} {
		if strings.Contains(r.Stdout, word) {
			t.Errorf("%q is in what is seen inside:\n%s", word, r.Stdout)
		}
	}
	within(t, r.Stdout, "kept", "tmpfs /volume tmpfs", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2")
	if strings.Contains(r.Stdout, "\n0\n") {
		t.Error("it runs as root")
	}
	if left := dockerCommand(t, host, "volume", "ls", "--quiet"); left != "" {
		t.Errorf("volumes left: %s", left)
	}
	if r := box.Agentfense("rm", "--force", box.Name); r.Code != 0 {
		t.Error(r.Stderr)
	}
	if left := dockerCommand(t, host, "ps", "--all", "--quiet") + dockerCommand(t, host, "volume", "ls", "--quiet"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// A volume inside the workspace would hide what the view shows there.
func TestVolumeInTheWorkspace(t *testing.T) {
	testenv.Docker(t)
	host := testenv.DockerDaemon(t)
	t.Setenv("DOCKER_HOST", host)
	box := harness.New(t, binary, map[string]string{"dir/kept": "kept\n"})
	id := dockerCommand(t, host, "create", testenv.DockerImage, "true")
	dockerCommand(t, host, "commit", "--change", "VOLUME "+box.Source+"/dir", id, "agentfense-inside:latest")
	dockerCommand(t, host, "rm", id)
	r := box.Agentfense("run", "--runtime", "docker", "--image", "agentfense-inside", "--preset", "full-access", "--name", box.Name, "--", "ls", "dir")
	if r.Code != 125 {
		t.Errorf("exit code %d\n%s", r.Code, r.Stdout)
	}
	within(t, r.Stderr, "its volume "+box.Source+"/dir")
	if left := dockerCommand(t, host, "ps", "--all", "--quiet") + dockerCommand(t, host, "volume", "ls", "--quiet"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// Nothing that gives power over the daemon can be asked for.
func TestDockerFlags(t *testing.T) {
	testenv.Docker(t)
	host := testenv.DockerDaemon(t)
	t.Setenv("DOCKER_HOST", host)
	socket := strings.TrimPrefix(host, "unix://")
	box := harness.New(t, binary, map[string]string{"kept": "kept\n"})
	for _, flags := range [][]string{
		{"--mount", socket},
		{"--mount", socket + ":/run/docker.sock"},
		{"--image", "--privileged"},
		{"--image", "../../etc"},
		{"--image", "a b"},
		{"--image", testenv.DockerImage + "?x=1"},
		{"--net", "container:x"},
	} {
		args := append([]string{"run", "--runtime", "docker", "--image", testenv.DockerImage, "--name", box.Name}, flags...)
		if r := box.Agentfense(append(args, "--", "true")...); r.Code != 125 && r.Code != 2 {
			t.Errorf("%q: exit code %d\n%s", flags, r.Code, r.Stderr)
		}
	}
	if left := dockerCommand(t, host, "ps", "--all", "--quiet"); left != "" {
		t.Errorf("left: %s", left)
	}
}
