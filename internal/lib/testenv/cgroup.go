package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Cgroup needs root and, for each of the controllers ("memory", "cpu", "pids"),
// a cgroup hierarchy, v1 or v2, in which it limits groups that we make.
func Cgroup(t testing.TB, controllers ...string) {
	t.Helper()
	err := errors.Join(rootOnly(), probeCgroup(controllers))
	check(t, "cgroup", err)
}

// CgroupVersion needs root and a mounted hierarchy of that version, 1 or 2; the
// need's name is cgroup1 or cgroup2.
func CgroupVersion(t testing.TB, version int) {
	t.Helper()
	mounts, err := cgroupMounts()
	if err = errors.Join(rootOnly(), err); err == nil && !slices.ContainsFunc(mounts, func(m cgroupMount) bool {
		return m.version == version && len(m.controllers) > 0
	}) {
		err = fmt.Errorf("no cgroup hierarchy of version %d is mounted", version)
	}
	check(t, fmt.Sprintf("cgroup%d", version), err)
}

// cgroupMount is a mounted hierarchy.
type cgroupMount struct {
	version     int
	dir         string
	controllers []string // of v2: the hierarchy itself, by an empty name, too
}

// cgroupMounts reads /proc/self/mounts (proc_pid_mounts(5)).
func cgroupMounts() ([]cgroupMount, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var mounts []cgroupMount
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		switch f[2] {
		case "cgroup":
			mounts = append(mounts, cgroupMount{1, f[1], strings.Split(f[3], ",")})
		case "cgroup2":
			names, err := os.ReadFile(filepath.Join(f[1], "cgroup.controllers"))
			if err != nil {
				return nil, err
			}
			mounts = append(mounts, cgroupMount{2, f[1], append(strings.Fields(string(names)), "")})
		}
	}
	return mounts, nil
}

// probeCgroup makes and removes a group in the hierarchy of each controller.
func probeCgroup(controllers []string) error {
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	if len(mounts) == 0 {
		return errors.New("no cgroup hierarchy is mounted")
	}
	for _, name := range controllers {
		i := slices.IndexFunc(mounts, func(m cgroupMount) bool { return slices.Contains(m.controllers, name) })
		if i < 0 {
			return fmt.Errorf("no cgroup hierarchy has the %s controller", name)
		}
		dir, err := os.MkdirTemp(mounts[i].dir, "agentfense-needs-")
		if err != nil {
			return err
		}
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	return nil
}
