package cgroup

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeHost is a directory tree that behaves like a cgroup file system: a new directory has
// the control files, and only those can be written.
type fakeHost struct {
	t     *testing.T
	root  string
	own   map[string]bool // directories marked as delegated
	files map[string]map[string]string
	uid   int
	rofs  string // below it nothing may be written
}

// v1Files are the control files of a new group in each v1 hierarchy.
var v1Files = map[string]map[string]string{
	"memory": {
		"memory.limit_in_bytes": "9223372036854771712", "memory.memsw.limit_in_bytes": "9223372036854771712",
		"memory.max_usage_in_bytes": "0", "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0",
		"memory.use_hierarchy": "0",
	},
	"cpu,cpuacct": {
		"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000", "cpu.shares": "1024",
		"cpuacct.usage": "0", "cpuacct.usage_user": "0", "cpuacct.usage_sys": "0",
	},
	"pids":    {"pids.max": "max", "pids.events": "max 0"},
	"freezer": {"freezer.state": "THAWED"},
}

var v2Files = map[string]string{
	"cgroup.type": "domain", "cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "",
	"cgroup.kill": "", "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0", "cpu.max": "max 100000", "cpu.weight": "100",
	"memory.max": "max", "memory.swap.max": "max", "memory.peak": "0", "memory.events": "oom 0\noom_kill 0",
	"pids.max": "max", "pids.events": "max 0",
}

// newFake makes a host with the given mountinfo and own groups. A hierarchy is v2 if its
// controllers start with "v2".
func newFake(t *testing.T, hierarchies map[string]string, own string) *fakeHost {
	t.Helper()
	f := &fakeHost{t: t, root: t.TempDir(), own: map[string]bool{}, files: map[string]map[string]string{}}
	var mounts, groups strings.Builder
	for _, controllers := range slices.Sorted(maps.Keys(hierarchies)) {
		at := hierarchies[controllers]
		kind, options, key := "cgroup", "rw,"+controllers, controllers
		files := maps.Clone(v1Files[controllers])
		if handed, v2 := strings.CutPrefix(controllers, "v2 "); v2 {
			kind, options, key = "cgroup2", "rw,nsdelegate", ""
			files = maps.Clone(v2Files)
			files["cgroup.controllers"] = handed
		}
		files["cgroup.procs"] = ""
		f.files[f.root+at] = files
		mounts.WriteString("30 20 0:30 / " + at + " rw,nosuid - " + kind + " cgroup " + options + "\n")
		groups.WriteString("1:" + key + ":" + own + "\n")
		f.makeAll(at, own)
		if kind == "cgroup2" {
			f.remove(at + "/cgroup.type")
		}
	}
	f.put("/proc/self/mountinfo", mounts.String())
	f.put("/proc/self/cgroup", groups.String())
	return f
}

func (f *fakeHost) makeAll(at, group string) {
	f.must(os.MkdirAll(filepath.Dir(f.root+at), 0o755))
	dir := f.root + at
	f.must(f.mkdir(dir))
	for name := range strings.SplitSeq(strings.Trim(group, "/"), "/") {
		if name != "" {
			dir += "/" + name
			f.must(f.mkdir(dir))
		}
	}
}

func (f *fakeHost) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fakeHost) put(path, text string) {
	f.t.Helper()
	f.must(os.MkdirAll(filepath.Dir(f.root+path), 0o755))
	f.must(os.WriteFile(f.root+path, []byte(text), 0o644))
}

func (f *fakeHost) remove(path string) { f.must(os.Remove(f.root + path)) }

// get reads a control file. It returns "-" if the file is absent.
func (f *fakeHost) get(path string) string {
	b, err := os.ReadFile(f.root + path)
	if err != nil {
		return "-"
	}
	return strings.TrimSpace(string(b))
}

func (f *fakeHost) mkdir(dir string) error {
	if err := unix.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for mount, files := range f.files {
		if dir != mount && !strings.HasPrefix(dir, mount+"/") {
			continue
		}
		for name, text := range files {
			f.must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
	}
	return nil
}

// rmdir removes a group like the kernel: processes prevent it, control files do not.
func (f *fakeHost) rmdir(dir string) error {
	below, err := subgroups(dir)
	if errors.Is(err, os.ErrNotExist) {
		return unix.ENOENT
	}
	if pids, _ := processes(dir); len(pids) > 0 || len(below) > 0 {
		return unix.EBUSY
	}
	return os.RemoveAll(dir)
}

func (f *fakeHost) access(path string) error {
	if f.rofs != "" && strings.HasPrefix(path, f.root+f.rofs) {
		return unix.EROFS
	}
	if info, err := os.Stat(path); err != nil {
		return unix.ENOENT
	} else if info.Mode()&0o200 == 0 {
		return unix.EACCES
	}
	return nil
}

func (f *fakeHost) detect() Host {
	f.t.Helper()
	h, err := detect(f.root, kernel{
		mkdir: f.mkdir, rmdir: f.rmdir, access: f.access,
		delegated: func(dir string) bool { return f.own[strings.TrimPrefix(dir, f.root)] },
		kill: func(pid int) error {
			f.t.Errorf("the fake was asked to kill %d", pid)
			return nil
		},
		own: func(pid int) bool { return pid == 1000 },
		uid: f.uid,
	})
	f.must(err)
	return h
}
