package serve_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// leftovers are what a crashed host still has of a server.
func (s *server) leftovers() (left []string) {
	s.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(must(s.t, mounts, err))) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, s.home+"/") {
			left = append(left, "mount "+strings.TrimPrefix(at, s.home))
		}
	}
	entries, err := os.ReadDir(filepath.Join(s.home, "sandboxes"))
	for _, e := range must(s.t, entries, err) {
		if strings.HasPrefix(e.Name(), ".") {
			left = append(left, "directory "+e.Name())
		}
	}
	return left
}

// groups are the control groups of sandboxes.
func groups(ids ...string) (found []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error { // others come and go
		if err == nil && d.IsDir() && slices.Contains(ids, d.Name()) {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	return found
}

// limited makes a sandbox that has a control group.
func (s *server) limited(codebase string) string {
	s.t.Helper()
	made, err := s.sandboxes.CreateSandbox(s.t.Context(), &sandboxv1.CreateSandboxRequest{
		CodebaseId: codebase, Permissions: everything, Resources: &sandboxv1.ResourceLimits{PidsLimit: 100},
	})
	id := must(s.t, made, err).Id
	started, err := s.sandboxes.StartSandbox(s.t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
	must(s.t, started, err)
	return id
}

// halfRemove leaves a sandbox as a removal that was killed does.
func (s *server) halfRemove(id string) {
	s.t.Helper()
	sandboxes := filepath.Join(s.home, "sandboxes")
	if err := os.Rename(filepath.Join(sandboxes, id), filepath.Join(sandboxes, ".gone-"+strings.TrimPrefix(id, "sb_"))); err != nil {
		s.t.Fatal(err)
	}
}

func TestTheNextServerRemovesWhatAKilledHostLeft(t *testing.T) {
	testenv.Cgroup(t, "pids")
	s := start(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	live, dead, half := s.limited(cb), s.limited(cb), s.limited(cb)
	s.exec(dead, "echo unsynced > f")
	s.killSupervisor(dead)
	s.killSupervisor(half)
	s.end(syscall.SIGKILL)
	s.halfRemove(half)
	if len(groups(dead)) == 0 || len(groups(half)) == 0 {
		t.Fatalf("groups %q: nothing is left to be removed", groups(dead, half))
	}
	s.serve()
	if left := append(s.leftovers(), groups(dead, half)...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if got := s.exec(live, "cat f"); got != "unsynced\n" || len(groups(live)) == 0 {
		t.Errorf("the sandbox that ran on shows %q, its groups are %q", got, groups(live))
	}
	if got := s.status(dead); got != sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR {
		t.Errorf("the sandbox whose supervisor was killed is %s", got)
	}
	_, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: half})
	wantCode(t, err, codes.NotFound)
	if log := s.agentfense("audit", half, "--json"); strings.Count(log, `"event":"sandbox_destroyed"`) != 1 {
		t.Errorf("the log of the sandbox that is gone: %s", log)
	}
}

func TestTheNextServerRemovesContainersAndTheirMounts(t *testing.T) {
	s, host := startDocker(t)
	cb := s.codebase(map[string]string{"f": "old\n"})
	live, dead, half := s.sandbox(cb), s.sandbox(cb), s.sandbox(cb)
	// Another state directory's, as far as we can know.
	foreign := exec.Command("docker", "--host", host, "create", "--name", "foreign",
		"--label", "agentfense.sandbox="+dead, "--label", "agentfense.directory=/elsewhere/sandboxes/"+dead, testenv.DockerImage, "true")
	if out, err := foreign.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	running := len(s.leftovers()) / 3
	s.killSupervisor(dead)
	s.killSupervisor(half)
	s.end(syscall.SIGKILL)
	s.halfRemove(half)
	if left := s.leftovers(); len(left) < 2*running || containers(t, host) != 4 {
		t.Fatalf("%q and %d containers: nothing is left to be removed", left, containers(t, host))
	}
	s.serve()
	if left := s.leftovers(); len(left) != running || containers(t, host) != 2 {
		t.Errorf("left: %q and %d containers, want what the one that runs has, and the foreign one", left, containers(t, host))
	}
	if got := s.exec(live, "cat f"); got != "old\n" {
		t.Errorf("the sandbox that ran on shows %q", got)
	}
	started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: dead})
	must(t, started, err)
	if got := s.exec(dead, "cat f"); got != "old\n" {
		t.Errorf("started again it shows %q", got)
	}
}
