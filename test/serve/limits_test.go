package serve_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestLimits(t *testing.T) {
	testenv.Cgroup(t, "memory", "cpu", "pids")
	start(t).limitsHold()
}

// limitsHold checks every limit that a sandbox can have.
func (s *server) limitsHold() {
	t := s.t
	cb := s.codebase(nil)
	limits := &sandboxv1.ResourceLimits{
		MemoryBytes: 64 << 20, CpuQuota: 50_000, CpuShares: 512, PidsLimit: 20, DiskBytes: 1 << 20, DiskInodes: 10,
	}
	made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: everything, Resources: limits})
	if got := must(t, made, err).Resources; !proto.Equal(got, limits) {
		t.Errorf("resources %v, want %v", got, limits)
	}
	id := made.Id
	started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
	must(t, started, err)
	s.limitIsWritten(id, "cpu", 50_000, "cpu.cfs_quota_us", "cpu.max")
	s.limitIsWritten(id, "cpu", 512, "cpu.shares", "cpu.weight")
	for command, want := range map[string]string{
		"tail /dev/zero": "exit 137",
		"i=0; while [ $i -lt 30 ]; do sleep 60 & i=$((i+1)); done":          "fork",
		"head -c 2000000 /dev/zero > large || echo refused >&2; rm large":   "refused",
		"i=0; while [ $i -lt 20 ]; do echo > small$i; i=$((i+1)); done; ls": "small10: Disk quota exceeded",
	} {
		r, err := s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: command})
		if got := must(t, r, err); !strings.Contains(fmt.Sprintf("%s exit %d", got.Stderr, got.ExitCode), want) {
			t.Errorf("%s: %v, want %s", command, got, want)
		}
	}
	empty, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
	must(t, empty, err)
}

// limitIsWritten looks for a limit in the control group of a sandbox, or around
// it: in the file of v1, or in that of v2, whose number may be another.
func (s *server) limitIsWritten(id, controller string, want int, v1, v2 string) {
	t := s.t
	t.Helper()
	for line := range strings.Lines(s.groupsOf(id)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		dir := filepath.Join("/sys/fs/cgroup", parts[1], parts[2])
		for _, dir := range []string{dir, filepath.Dir(dir)} {
			text, _ := os.ReadFile(filepath.Join(dir, v1))
			if got, _ := strconv.Atoi(strings.TrimSpace(string(text))); got == want {
				return
			}
			text, err := os.ReadFile(filepath.Join(dir, v2))
			if err == nil && parts[1] == "" && !bytes.HasPrefix(text, []byte("max")) && strings.TrimSpace(string(text)) != "100" {
				return
			}
		}
	}
	t.Errorf("%s: no limit %d of %s is written:\n%s", id, want, controller, s.groupsOf(id))
}

// groupsOf returns the control groups of a command of a sandbox.
func (s *server) groupsOf(id string) string {
	t := s.t
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := s.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{SandboxId: id, Command: "echo; sleep 1000"})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	groups := ""
	testenv.Eventually(t, "a process of the command is seen", func() bool { // one that is starting a program is not
		groups = groupsOfProcess("AGENTFENSE_SANDBOX=" + id)
		return groups != ""
	})
	return groups
}

// groupsOfProcess returns the control groups of a process whose environment has
// a variable, "" if there is none.
func groupsOfProcess(variable string) string {
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	for _, dir := range processes {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(environ, []byte(variable)) {
			continue // it may have ended
		}
		if groups, err := os.ReadFile(filepath.Join(dir, "cgroup")); err == nil {
			return string(groups)
		}
	}
	return ""
}

func TestLimitsThatNothingCanHaveAreRefused(t *testing.T) {
	s := start(t)
	cb := s.codebase(nil)
	for field, limits := range map[string]*sandboxv1.ResourceLimits{
		"memory_bytes": {MemoryBytes: 1},
		"cpu_quota":    {CpuQuota: 999},
		"cpu_shares":   {CpuShares: 1 << 19},
		"pids_limit":   {PidsLimit: -1},
		"disk_bytes":   {DiskBytes: -1},
		"disk_inodes":  {DiskInodes: -1},
	} {
		_, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Resources: limits})
		wantCode(t, err, codes.InvalidArgument, "resources."+field)
	}
}
