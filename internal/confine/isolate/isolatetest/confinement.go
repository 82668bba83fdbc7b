package isolatetest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/isolate"
)

var confinementCases = []testCase{
	{name: "the host counts every process as the sandbox's user, without rights", run: testHostIDs},
	{name: "inside, the ids are the spec's", run: testInsideIDs},
	{name: "what a hostile program tries is refused", run: testProbes},
	{name: "only three descriptors are inside", run: testDescriptors},
	{name: "there is no network", run: testNoNetwork},
	{name: "the host's network is there when asked for", run: testHostNetwork},
	{name: "nothing readable inside names a host path", run: testNoHostPaths},
	{name: "the environment is what the exec gives", run: testEnvironment},
	{name: "no process of the host is visible", run: testOwnPids},
	{name: "a crash is nobody's to dump", run: testCoreLimit},
	{name: "root does not start a sandbox as root", run: testRootMustDrop},
}

// status returns the fields of /proc/PID/status as the host sees them.
func status(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

func testHostIDs(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"cat"}})
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = hostUser, hostUser
	}
	four := func(id int) string { return strings.TrimSpace(strings.Repeat(strconv.Itoa(id)+" ", 4)) }
	const none = "0000000000000000"
	want := map[string]string{
		"Uid": four(uid), "Gid": four(gid), "NoNewPrivs": "1", "Seccomp": "2",
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
	}
	if os.Geteuid() == 0 {
		want["Groups"] = ""
	}
	if images != nil {
		want["Groups"] = strconv.Itoa(gid) // no other groups
	}
	command := childOf(t, r.HostPID())
	for name, pid := range map[string]int{"PID 1": b.proc.PID(), "the leader": r.HostPID(), "the command": command} {
		got := status(t, pid)
		maps.DeleteFunc(got, func(key, _ string) bool { _, ok := want[key]; return !ok })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// testCoreLimit checks for the limit that prevents both dump files and pipes.
func testCoreLimit(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"sh", "-c", "ulimit -c 0 && echo set && cat /proc/self/limits && sleep 1000"}})
	r.line()
	for {
		line := r.line()
		if fields, ok := strings.CutPrefix(line, "Max core file size"); ok {
			if got := strings.Join(strings.Fields(fields), " "); got != "1 1 bytes" {
				t.Errorf("core limit: got %s, want one byte", got)
			}
			return
		}
	}
}

// childOf returns the pid of the one child of pid.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	children := childrenOf(t, pid)
	if len(children) == 0 {
		t.Fatalf("process %d has no child", pid)
	}
	return children[0]
}

func testInsideIDs(t *testing.T, factory Factory) {
	spec := newSpec(t)
	spec.UID, spec.GID, spec.User, spec.Home, spec.Hostname = 1234, 4321, "ann", "/home/ann", "box"
	if images != nil {
		spec.HostUID, spec.HostGID = spec.UID, spec.GID
	}
	b := start(t, factory, spec)
	got := b.must(`id -u; id -g; id -un; id -gn; hostname; cat /etc/hostname; eval echo ~ann; touch /home/ann/x && echo home`)
	if want := "1234\n4321\nann\nann\nbox\nbox\n/home/ann\nhome"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func testProbes(t *testing.T, factory Factory) {
	b := simple(t, factory)
	absent, family := "function not implemented", "address family not supported by protocol"
	no, denied := "operation not permitted", "permission denied"
	want := map[string]string{}
	for name := range probes {
		want[name] = no
	}
	want["clone with clone3"], want["set up io_uring"] = absent, absent
	want["open a vsock"] = family
	if images == nil {
		want["become another user"] = "invalid argument" // there is none
	}
	for _, name := range []string{
		"read the memory of PID 1", "list the descriptors of PID 1", "read the binary of PID 1",
		"read the descriptors of leaders", "read the binary of a leader",
		"write a kernel setting", "write the user limits",
	} {
		want[name] = denied
	}
	names := slices.Sorted(maps.Keys(probes))
	out, text, exit := b.run(append([]string{probePath, probeVerb}, names...)...)
	if exit != (guest.Exit{UserTime: exit.UserTime, SystemTime: exit.SystemTime, MaxRSSBytes: exit.MaxRSSBytes}) {
		t.Fatalf("probes: %+v %s", exit, text)
	}
	got := map[string]string{}
	for line := range strings.Lines(out) {
		name, result, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if result == "read-only file system" {
			result = denied
		}
		got[name] = result
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func testDescriptors(t *testing.T, factory Factory) {
	b := simple(t, factory)
	got := b.must(`for f in /proc/self/fd/*; do echo ${f##*/}; done`)
	// The shell has another descriptor to read the directory.
	if want := "0\n1\n2\n3"; got != want && got != "0\n1\n2" {
		t.Errorf("a command has descriptors %q", got)
	}
	if os.Geteuid() != 0 {
		return // /proc/PID/fd of an undumpable process is root's
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", b.proc.PID()))
	if err != nil || len(links) == 0 {
		t.Fatal(links, err)
	}
	for _, link := range links {
		target, _ := os.Readlink(link)
		anonymous := strings.HasPrefix(target, "socket:") || strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "anon_inode:")
		if !anonymous && target != "/dev/null" {
			t.Errorf("PID 1 holds %s as %s", target, filepath.Base(link))
		}
	}
}

func testNoNetwork(t *testing.T, factory Factory) {
	b := simple(t, factory)
	if got := b.must(`tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '`); got != "lo" {
		t.Errorf("interfaces: %q, want lo alone", got)
	}
	if got := b.must(`cat /proc/net/unix | tail -n +2 | grep -c @ || true`); got != "0" {
		t.Errorf("%s abstract sockets are in reach", got)
	}
	b.must(`test ! -s /etc/resolv.conf`)
}

func testHostNetwork(t *testing.T, factory Factory) {
	spec := newSpec(t)
	spec.Net = isolate.NetHost
	b := start(t, factory, spec)
	want, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if got := b.must(`readlink /proc/self/ns/net`); got != want {
		t.Errorf("network namespace: got %s, want the host's, %s", got, want)
	}
}

func testNoHostPaths(t *testing.T, factory Factory) {
	spec := newSpec(t)
	spec.Mounts = nil
	b := start(t, factory, spec)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := b.must(`cat /proc/self/mountinfo; tr '\0' '\n' </proc/1/cmdline; cat /proc/1/environ; tr '\0' '\n' </proc/$PPID/cmdline; true`)
	paths := []string{spec.View, self, filepath.Dir(self), os.TempDir() + "/"}
	if images != nil {
		paths = []string{spec.View, spec.Dir} // the daemon shows where it keeps images, and binds of files
	}
	for _, path := range paths {
		if strings.Contains(text, path) {
			t.Errorf("%s shows inside:\n%s", path, text)
		}
	}
}

func testEnvironment(t *testing.T, factory Factory) {
	t.Setenv("AGENTFENSE_TEST_SECRET", "leaks")
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"/usr/bin/env"}, Env: []string{"A=1", "B=x y"}})
	if got := r.line() + "|" + r.line(); got != "A=1|B=x y" {
		t.Errorf("environment: %s", got)
	}
	if exit := r.wait(); exit.Code != 0 {
		t.Errorf("env: %+v", exit)
	}
	rest := make([]byte, 1)
	if n, _ := r.stdout.Read(rest); n != 0 {
		t.Error("there is more in the environment")
	}
}

func testOwnPids(t *testing.T, factory Factory) {
	b := simple(t, factory)
	if got := b.must(`ls -d /proc/[0-9]* | wc -l`); len(got) > 1 {
		t.Errorf("%s processes are visible", got)
	}
}

func testRootMustDrop(t *testing.T, factory Factory) {
	if os.Geteuid() != 0 {
		t.Skip("for root alone")
	}
	spec := newSpec(t)
	spec.HostUID, spec.HostGID = 0, 0
	if _, err := tryStart(t, factory, spec); err == nil {
		t.Error("started as root of the host")
	}
}
