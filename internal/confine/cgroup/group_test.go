package cgroup

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

var (
	onlyV1 = map[string]string{
		"memory": "/cg/memory", "cpu,cpuacct": "/cg/cpu,cpuacct", "pids": "/cg/pids", "freezer": "/cg/freezer",
	}
	onlyV2 = map[string]string{"v2 cpu memory pids hugetlb": "/cg"}
	hybrid = map[string]string{
		"memory": "/cg/memory", "cpu,cpuacct": "/cg/cpu,cpuacct", "pids": "/cg/pids", "v2 hugetlb": "/cg/unified",
	}
	allLimits = GroupLimits{MemoryBytes: 64 << 20, CPUs: 1.5, CPUShares: 512, PIDs: 100}
)

func TestCreateWritesTheLimits(t *testing.T) {
	v1 := map[string]string{
		"/cg/memory/own/agentfense/sb_1/memory.limit_in_bytes":       "67108864",
		"/cg/memory/own/agentfense/sb_1/memory.memsw.limit_in_bytes": "67108864",
		"/cg/memory/own/agentfense/memory.use_hierarchy":             "1",
		"/cg/cpu,cpuacct/own/agentfense/sb_1/cpu.cfs_quota_us":       "150000",
		"/cg/cpu,cpuacct/own/agentfense/sb_1/cpu.cfs_period_us":      "100000",
		"/cg/cpu,cpuacct/own/agentfense/sb_1/cpu.shares":             "512",
		"/cg/pids/own/agentfense/sb_1/pids.max":                      "100",
		"/cg/memory/own/agentfense/sb_1/init/cgroup.procs":           "4711",
		"/cg/pids/own/agentfense/sb_1/init/cgroup.procs":             "4711",
		"/cg/pids/own/agentfense/sb_1/cgroup.procs":                  "",
	}
	tests := []struct {
		name        string
		hierarchies map[string]string
		uid         int
		want        map[string]string
	}{
		{"v1 has a group in each hierarchy, below the own group", onlyV1, 1000, v1},
		{"hybrid limits on v1 and has a v2 group to kill", hybrid, 0, merge(v1, map[string]string{
			"/cg/unified/own/agentfense/sb_1/init/cgroup.procs": "4711",
			"/cg/unified/cgroup.subtree_control":                "",
		})},
		{"v2 has one group, and swap is part of memory", onlyV2, 1000, map[string]string{
			"/cg/own/agentfense/sb_1/memory.max":             "67108864",
			"/cg/own/agentfense/sb_1/memory.swap.max":        "0",
			"/cg/own/agentfense/sb_1/cpu.max":                "150000 100000",
			"/cg/own/agentfense/sb_1/cpu.weight":             "59",
			"/cg/own/agentfense/sb_1/pids.max":               "100",
			"/cg/own/agentfense/sb_1/init/cgroup.procs":      "4711",
			"/cg/own/agentfense/sb_1/cgroup.procs":           "",
			"/cg/own/cgroup.subtree_control":                 "+cpu +memory +pids",
			"/cg/own/agentfense/cgroup.subtree_control":      "+cpu +memory +pids",
			"/cg/own/agentfense/sb_1/cgroup.subtree_control": "+memory +pids",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, tt.hierarchies, "/own")
			f.uid = tt.uid
			g := f.create("sb_1", allLimits)
			f.must(g.Add(4711))
			for path, want := range tt.want {
				if got := f.get(path); got != want {
					t.Errorf("%s = %q, want %q", path, got, want)
				}
			}
		})
	}
}

func TestSharesAndWeightsMeetAtTheirBounds(t *testing.T) {
	for shares, want := range map[int64]int64{2: 1, 1024: 100, 1 << 18: 10000} {
		if got := weightOf(shares); got != want {
			t.Errorf("weightOf(%d) = %d, want %d", shares, got, want)
		}
	}
}

func TestWhatEntersIsInTheGroupUntilItSettles(t *testing.T) {
	for name, hierarchies := range map[string]map[string]string{"v1": onlyV1, "v2": onlyV2, "hybrid": hybrid} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, hierarchies, "/own")
			g := f.create("sb_1", allLimits)
			f.must(g.Enter(4711))
			for _, at := range hierarchies {
				dir := at + "/own/agentfense/sb_1"
				if got := f.get(dir + "/cgroup.procs"); got != "4711" {
					t.Errorf("%s holds %q, want the process", dir, got)
				}
				if got := f.get(dir + "/cgroup.subtree_control"); got != "-" && got != "" {
					t.Errorf("%s hands down %q, want nothing yet", dir, got)
				}
			}
			f.must(g.Settle())
			f.must(g.Settle())
			for _, at := range hierarchies {
				dir := at + "/own/agentfense/sb_1/init"
				if got := f.get(dir + "/cgroup.procs"); got != "4711" {
					t.Errorf("%s holds %q, want the process", dir, got)
				}
			}
			if err := g.Enter(4712); !errdefs.Is(err, errdefs.Precondition) {
				t.Errorf("Enter of a settled group = %v, want Precondition", err)
			}
		})
	}
}

func merge(parts ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range parts {
		maps.Copy(all, m)
	}
	return all
}

func (f *fakeHost) create(name string, l GroupLimits) *Group {
	f.t.Helper()
	g, err := f.detect().Create(name, l)
	f.must(err)
	f.t.Cleanup(func() {
		for _, fd := range g.locks {
			_ = os.NewFile(uintptr(fd), "lock").Close()
		}
	})
	return g
}

func TestMemoryIsLimitedWhereSwapIsNotAccounted(t *testing.T) {
	f := newFake(t, onlyV2, "/own")
	delete(f.files[f.root+"/cg"], "memory.swap.max")
	f.create("sb_1", GroupLimits{MemoryBytes: 1 << 20})
	if got := f.get("/cg/own/agentfense/sb_1/memory.max"); got != "1048576" {
		t.Errorf("memory.max = %q, want 1048576", got)
	}
}

func TestAnUnlimitedGroupChangesNothingAroundIt(t *testing.T) {
	f := newFake(t, onlyV2, "/own")
	g := f.create("sb_1", GroupLimits{})
	if got := f.get("/cg/own/cgroup.subtree_control"); got != "" {
		t.Errorf("the own group hands down %q, want nothing", got)
	}
	f.must(g.Delete())
	f.put("/cg/own/cgroup.subtree_control", "memory pids")
	f.must(f.create("sb_2", GroupLimits{}).Settle())
	if got := f.get("/cg/own/agentfense/sb_2/cgroup.subtree_control"); got != "+memory +pids" {
		t.Errorf("the group hands down %q, want what it has itself", got)
	}
}

func TestCreateRefuses(t *testing.T) {
	tests := []struct {
		name, group string
		limits      GroupLimits
		want        errdefs.Kind
	}{
		{"a path", "../x", GroupLimits{}, errdefs.Invalid},
		{"no name", "", GroupLimits{}, errdefs.Invalid},
		{"the name of a control file", "cgroup.procs", GroupLimits{}, errdefs.Invalid},
		{"the name of a v1 control file", "tasks", GroupLimits{}, errdefs.Invalid},
		{"the name of the own leaf", "init", GroupLimits{}, errdefs.Invalid},
		{"memory below zero", "a", GroupLimits{MemoryBytes: -1}, errdefs.Invalid},
		{"processes below zero", "a", GroupLimits{PIDs: -1}, errdefs.Invalid},
		{"less CPU than the kernel can do", "a", GroupLimits{CPUs: 0.001}, errdefs.Invalid},
		{"a CPU count that is none", "a", GroupLimits{CPUs: math.NaN()}, errdefs.Invalid},
		{"less shares than the kernel can do", "a", GroupLimits{CPUShares: 1}, errdefs.Invalid},
		{"more shares than the kernel can do", "a", GroupLimits{CPUShares: 1 << 19}, errdefs.Invalid},
		{"more CPUs than fit", "a", GroupLimits{CPUs: math.Inf(1)}, errdefs.Invalid},
		{"a name that is in use", "live", GroupLimits{}, errdefs.Exists},
	}
	f := newFake(t, onlyV1, "/own")
	f.create("live", GroupLimits{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := f.detect().Create(tt.group, tt.limits); !errdefs.Is(err, tt.want) {
				t.Errorf("Create(%q, %+v) = %v, want %v", tt.group, tt.limits, err, tt.want)
			}
		})
	}
}

func TestDeleteLeavesNothingAndSparesOthers(t *testing.T) {
	f := newFake(t, hybrid, "/own")
	a, b := f.create("a", allLimits), f.create("b", GroupLimits{})
	_, err := a.Sub("exec-1")
	f.must(err)
	f.must(a.Delete())
	f.must(a.Delete())
	if got := f.get("/cg/memory/own/agentfense/b/cgroup.procs"); got != "" {
		t.Errorf("the other sandbox's group is %q, want it there", got)
	}
	if _, err := a.Usage(); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Usage of a deleted group = %v, want NotFound", err)
	}
	f.must(b.Delete())
	for _, mount := range hybrid {
		if entries, _ := filepath.Glob(f.root + mount + "/own/" + parentName); entries != nil {
			t.Errorf("%v is left", entries)
		}
	}
}

// The end of a command and of its sandbox may come together.
func TestDeleteWhileASubIsDeleted(t *testing.T) {
	f := newFake(t, hybrid, "/own")
	g := f.create("a", allLimits)
	_, err := g.Sub("exec-1")
	f.must(err)
	rmdir := g.kernel.rmdir
	g.kernel.rmdir = func(dir string) error {
		if filepath.Base(dir) == "exec-1" {
			f.must(rmdir(dir)) // another was faster
		}
		return rmdir(dir)
	}
	f.must(g.Delete())
	for _, mount := range hybrid {
		if entries, _ := filepath.Glob(f.root + mount + "/own/" + parentName); entries != nil {
			t.Errorf("%v is left", entries)
		}
	}
}

// A time-out kills a command, and a client asks what the sandbox uses, while the
// command's end removes its Sub and the sandbox's end removes everything.
func TestAGroupIsUsedWhileItIsDeleted(t *testing.T) {
	g, err := newFake(t, onlyV2, "/own").detect().Create("sb_1", allLimits)
	if err != nil {
		t.Fatal(err)
	}
	s, err := g.Sub("exec-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, deleted := range []*Group{s, g} {
		var using sync.WaitGroup
		using.Go(func() {
			if err := deleted.Kill(); err != nil {
				t.Error(err)
			}
		})
		using.Go(func() {
			g.Load()
			if _, err := g.Usage(); err != nil && !errdefs.Is(err, errdefs.NotFound) {
				t.Error(err)
			}
		})
		if err := deleted.Delete(); err != nil {
			t.Error(err)
		}
		using.Wait()
	}
}

func TestDeleteOfALiveGroupIsRefused(t *testing.T) {
	f := newFake(t, map[string]string{"pids": "/cg/pids"}, "/own")
	g := f.create("a", GroupLimits{})
	f.must(g.Add(4711))
	if err := g.Delete(); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("Delete = %v, want Precondition", err)
	}
	if empty, err := g.Empty(); empty || err != nil {
		t.Errorf("Empty = %v, %v, want false", empty, err)
	}
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name        string
		hierarchies map[string]string
		files       map[string]string // below the sandbox's group
		group, sub  Usage
	}{
		{
			"v1 adds up what the kernel does not", onlyV1,
			map[string]string{
				"/cg/cpu,cpuacct/own/agentfense/a/cpuacct.usage":             "3000000",
				"/cg/cpu,cpuacct/own/agentfense/a/cpuacct.usage_user":        "2000000",
				"/cg/cpu,cpuacct/own/agentfense/a/cpuacct.usage_sys":         "1000000",
				"/cg/cpu,cpuacct/own/agentfense/a/e1/cpuacct.usage":          "1000000",
				"/cg/memory/own/agentfense/a/memory.max_usage_in_bytes":      "8192",
				"/cg/memory/own/agentfense/a/e1/memory.max_usage_in_bytes":   "4096",
				"/cg/memory/own/agentfense/a/e1/memory.oom_control":          "under_oom 0\noom_kill 2",
				"/cg/memory/own/agentfense/a/init/memory.oom_control":        "under_oom 0\noom_kill 1",
				"/cg/pids/own/agentfense/a/e1/pids.events":                   "max 5",
				"/cg/pids/own/agentfense/a/init/pids.events":                 "max 1",
				"/cg/memory/own/agentfense/a/init/memory.max_usage_in_bytes": "100",
			},
			Usage{CPU: 3 * time.Millisecond, User: 2 * time.Millisecond, System: time.Millisecond, MemoryPeakBytes: 8192, OOMKills: 3, PIDsMaxHits: 6},
			Usage{CPU: time.Millisecond, MemoryPeakBytes: 4096, OOMKills: 2, PIDsMaxHits: 5},
		},
		{
			"v2 has counted the subs in, and forks where the limit is", onlyV2,
			map[string]string{
				"/cg/own/agentfense/a/cpu.stat":         "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000",
				"/cg/own/agentfense/a/memory.peak":      "8192",
				"/cg/own/agentfense/a/memory.events":    "oom 7\noom_kill 3\noom_group_kill 0",
				"/cg/own/agentfense/a/e1/memory.events": "oom 2\noom_kill 2",
				"/cg/own/agentfense/a/pids.events":      "max 6",
			},
			Usage{CPU: 3 * time.Millisecond, User: 2 * time.Millisecond, System: time.Millisecond, MemoryPeakBytes: 8192, OOMKills: 3, PIDsMaxHits: 6},
			Usage{OOMKills: 2, PIDsMaxHits: 6},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, tt.hierarchies, "/own")
			g := f.create("a", allLimits)
			sub, err := g.Sub("e1")
			f.must(err)
			for path, text := range tt.files {
				f.put(path, text)
			}
			f.wantUsage(sub, tt.sub)
			f.wantUsage(g, tt.group)
			f.must(sub.Delete())
			f.wantUsage(g, tt.group)
		})
	}
}

func (f *fakeHost) wantUsage(g *Group, want Usage) {
	f.t.Helper()
	got, err := g.Usage()
	f.must(err)
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("Usage of %s (-want +got):\n%s", g.name, diff)
	}
}

func TestSubsAreOneLevelAndHaveNames(t *testing.T) {
	f := newFake(t, onlyV1, "/own")
	g := f.create("a", GroupLimits{})
	s, err := g.Sub("e1")
	f.must(err)
	if _, err := g.Sub("e1"); !errdefs.Is(err, errdefs.Exists) {
		t.Errorf("the same Sub again = %v, want Exists", err)
	}
	if _, err := s.Sub("e2"); !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("Sub of a Sub = %v, want Precondition", err)
	}
	if err := g.Add(0); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("Add(0) = %v, want Invalid: the kernel takes it for the writer itself", err)
	}
}

func TestADeadOwnersNameIsTakenOver(t *testing.T) {
	f := newFake(t, onlyV1, "/own")
	g := f.create("a", GroupLimits{PIDs: 5})
	f.orphan(g)
	again := f.create("a", GroupLimits{})
	if got := f.get("/cg/pids/own/agentfense/a/pids.max"); got != "max" {
		t.Errorf("pids.max = %q, want a fresh group without limit", got)
	}
	f.must(again.Delete())
}

// orphan releases the locks of g, like the kernel for an owner that died.
func (f *fakeHost) orphan(g *Group) {
	for _, fd := range g.locks {
		f.must(os.NewFile(uintptr(fd), "lock").Close())
	}
	g.locks = nil
}

func TestSweep(t *testing.T) {
	f := newFake(t, hybrid, "/own")
	f.create("live", GroupLimits{})
	f.orphan(f.create("dead", GroupLimits{PIDs: 5}))
	f.orphan(f.create("foreign", GroupLimits{}))
	f.must(f.detect().Sweep(func(name string) bool { return name != "foreign" }))
	for name, want := range map[string]string{"live": "", "dead": "-", "foreign": ""} {
		if got := f.get("/cg/memory/own/agentfense/" + name + "/cgroup.procs"); got != want {
			t.Errorf("group %s after Sweep = %q, want %q", name, got, want)
		}
	}
}

func TestErrorsNameTheGroupButNoHostPath(t *testing.T) {
	f := newFake(t, onlyV1, "/own")
	delete(f.files[f.root+"/cg/pids"], "pids.max")
	_, err := f.detect().Create("a", GroupLimits{PIDs: 1})
	if err == nil || strings.Contains(err.Error(), f.root) || !strings.Contains(err.Error(), "agentfense/a: write pids.max") {
		t.Errorf("Create = %v, want the group and the file named", err)
	}
	if got := f.get("/cg/memory/own/agentfense/cgroup.procs"); got != "-" {
		t.Error("a Create that fails leaves its directories")
	}
}
