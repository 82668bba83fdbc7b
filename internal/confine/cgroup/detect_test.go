package cgroup

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

const all = "v2 cpu memory pids"

func TestDetectSaysWhatCanBeLimited(t *testing.T) {
	usable := func(version int) []Controller {
		return []Controller{{Name: Memory, Version: version}, {Name: CPU, Version: version}, {Name: PIDs, Version: version}}
	}
	broken := func(version int, reason, fix string) []Controller {
		c := usable(version)
		for i := range c {
			c[i].Reason, c[i].Fix = reason, fix
		}
		return c
	}
	tests := []struct {
		name        string
		hierarchies map[string]string
		uid         int
		change      func(*fakeHost)
		want        []Controller
	}{
		{"v1, own group writable", onlyV1, 1000, nil, usable(1)},
		{"hybrid, controllers on v1", hybrid, 0, nil, usable(1)},
		{
			"v2, only agentfense in the own group", onlyV2, 1000,
			func(f *fakeHost) { f.put("/cg/own/cgroup.procs", "1000\n1000") }, usable(2),
		},
		{"v2, delegated to a user whose shell is in it too", onlyV2, 1000, func(f *fakeHost) {
			f.put("/cg/own/cgroup.procs", "1000\n77")
			f.own["/cg/own"] = true
		}, usable(2)},
		{
			"v2, root among others takes the root of the hierarchy", onlyV2, 0,
			func(f *fakeHost) { f.put("/cg/own/cgroup.procs", "1000\n77") }, usable(2),
		},
		{
			"v2, a user among others", onlyV2, 1000,
			func(f *fakeHost) { f.put("/cg/own/cgroup.procs", "1000\n77") },
			broken(2, "this process's cgroup has other processes and is not delegated", "systemd-run --user --scope -p Delegate=yes agentfense …"),
		},
		{
			"v2, a user in a group of root's", onlyV2, 1000,
			func(f *fakeHost) { f.chmod("/cg/own", 0o555) },
			broken(2, "this process may not write to its own cgroup", "systemd-run --user --scope -p Delegate=yes agentfense …"),
		},
		{
			"v2, read-only in a container", onlyV2, 0,
			func(f *fakeHost) { f.rofs = "/cg" },
			broken(2, "the cgroup file system is mounted read-only", "mount it writable"),
		},
		{"v1, a user in a group of root's", onlyV1, 1000, func(f *fakeHost) {
			for _, mount := range onlyV1 {
				f.chmod(mount+"/own", 0o555)
			}
		}, broken(1, "this process may not write to its own cgroup", "run it as root, or on a host with cgroup v2 in a delegated group")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, tt.hierarchies, "/own")
			f.uid = tt.uid
			if tt.change != nil {
				tt.change(f)
			}
			h := f.detect()
			if diff := cmp.Diff(tt.want, h.Controllers); diff != "" {
				t.Errorf("Controllers (-want +got):\n%s", diff)
			}
			if err := h.Check(allLimits); (err == nil) != (tt.want[0].Reason == "") {
				t.Errorf("Check = %v", err)
			}
		})
	}
}

func (f *fakeHost) chmod(path string, mode os.FileMode) {
	f.must(os.Chmod(f.root+path, mode))
	f.t.Cleanup(func() { _ = os.Chmod(f.root+path, 0o755) })
}

func TestCheckNamesEachControllerThatIsWanting(t *testing.T) {
	f := newFake(t, map[string]string{all: "/cg"}, "/own")
	f.uid = 1000
	f.put("/cg/own/cgroup.controllers", "memory")
	h := f.detect()
	if err := h.Check(GroupLimits{MemoryBytes: 1}); err != nil {
		t.Errorf("Check of memory = %v, want nil", err)
	}
	err := h.Check(allLimits)
	if !errdefs.Is(err, errdefs.Unsupported) {
		t.Fatalf("Check = %v, want Unsupported", err)
	}
	for _, want := range []string{"cpu cannot be limited", "pids cannot be limited", "Delegate=cpu memory pids"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Check = %q, want %q in it", err, want)
		}
	}
	if _, err := h.Create("a", allLimits); !errdefs.Is(err, errdefs.Unsupported) {
		t.Errorf("Create = %v, want Unsupported", err)
	}
}

func TestAHostWithoutControllers(t *testing.T) {
	f := newFake(t, map[string]string{"v2 hugetlb": "/cg"}, "/own")
	h := f.detect()
	want := []string{"boot with cgroup_enable=memory", "boot a kernel with this controller", "boot a kernel with this controller"}
	for i, c := range h.Controllers {
		if c.Version != 0 || c.Reason == "" || c.Fix != want[i] {
			t.Errorf("controller = %+v, want none, to be fixed by %q", c, want[i])
		}
	}
	if !h.Usable() {
		t.Error("a v2 without controllers still kills: Usable = false, want true")
	}
	bare := newFake(t, nil, "/")
	h = bare.detect()
	if h.Usable() {
		t.Error("Usable without any hierarchy")
	}
	if _, err := h.Create("a", GroupLimits{}); !errdefs.Is(err, errdefs.Unsupported) {
		t.Errorf("Create without any hierarchy = %v, want Unsupported", err)
	}
}

func TestMountsAreReadAsTheKernelWritesThem(t *testing.T) {
	f := newFake(t, map[string]string{"pids": "/cg"}, "/")
	f.put("/proc/self/cgroup", "9:name=systemd:/\n8:pids:/docker/abc\nnonsense\n0::/\n")
	f.put("/proc/self/mountinfo", strings.Join([]string{
		`1 0 0:1 / / rw - ext4 /dev/a rw`,
		`31 23 0:28 / /sys rw,relatime shared:3 master:1 - tmpfs tmpfs rw`,
		`32 31 0:29 /docker/abc /a\040b rw,relatime shared:4 - cgroup cgroup rw,pids`,
		`33 31 0:29 / /elsewhere rw - cgroup cgroup rw,pids`,
		`short line`,
	}, "\n"))
	f.put("/a b/cgroup.procs", "")
	h := f.detect()
	if got := h.controller(PIDs); got.Reason != "" || got.Version != 1 {
		t.Errorf("pids = %+v, want usable in the container's own mount", got)
	}
	f.put("/proc/self/cgroup", "8:pids:/docker/other\n")
	h = f.detect()
	if got := h.controller(PIDs); got.Reason != "this process's cgroup is outside of the mounted cgroup tree" {
		t.Errorf("pids = %+v, want a reason", got)
	}
}

func TestProcessesOfADelegatedGroupMakeRoom(t *testing.T) {
	f := newFake(t, map[string]string{all: "/cg"}, "/own/"+selfName)
	f.own["/cg/own"] = true
	f.uid = 1000
	h := f.detect()
	if got, want := h.hierarchies[0].base, f.root+"/cg/own"; got != want {
		t.Errorf("base = %q, want %q: the leaf is not a place for groups", got, want)
	}
	f.put("/cg/own/cgroup.procs", "1000\n")
	_, err := h.kernel.emptyInto(f.root+"/cg/own", selfName)
	f.must(err)
	if got := f.get("/cg/own/" + selfName + "/cgroup.procs"); got != "1000" {
		t.Errorf("the leaf holds %q, want 1000", got)
	}
}

func FuzzDetect(f *testing.F) {
	f.Add("8:pids:/x\n0::/", "32 31 0:29 / /cg rw - cgroup cgroup rw,pids")
	f.Add("0::/../..", "32 31 0:29 /../.. /cg rw - cgroup2 cgroup2 rw")
	f.Add("::", " - cgroup")
	f.Fuzz(func(t *testing.T, groups, mounts string) {
		root := t.TempDir()
		host := &fakeHost{t: t, root: root}
		host.put("/proc/self/cgroup", groups)
		host.put("/proc/self/mountinfo", mounts)
		h, err := detect(root, kernel{access: host.access, delegated: func(string) bool { return false }, own: func(int) bool { return false }})
		if err == nil && len(h.Controllers) != 3 {
			t.Errorf("%d controllers, want 3", len(h.Controllers))
		}
	})
}

func TestDelegationHelpsOnlyWhereV2CouldHold(t *testing.T) {
	for name, c := range map[string]struct {
		hierarchies map[string]string
		change      func(*fakeHost)
		limits      GroupLimits
		want        bool
	}{
		"v2, a group of root's":               {onlyV2, func(f *fakeHost) { f.chmod("/cg/own", 0o555) }, GroupLimits{MemoryBytes: 1}, true},
		"v2, a group of root's, but no limit": {onlyV2, func(f *fakeHost) { f.chmod("/cg/own", 0o555) }, GroupLimits{}, false},
		"v2, a group of the user's":           {onlyV2, func(f *fakeHost) { f.put("/cg/own/cgroup.procs", "1000") }, GroupLimits{PIDs: 9}, false},
		"v1 alone":                            {onlyV1, nil, GroupLimits{MemoryBytes: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.hierarchies, "/own")
			f.uid = 1000
			if c.change != nil {
				c.change(f)
			}
			if got := f.detect().DelegationHelps(c.limits); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
