package testenv

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"testing"
)

// UserManager needs what starts a systemd user manager in namespaces of the
// test's own: root, systemd, D-Bus and a cgroup hierarchy of version 2. The
// manager of the machine need not run.
func UserManager(t testing.TB) {
	t.Helper()
	mounts, err := cgroupMounts()
	if err == nil && !slices.ContainsFunc(mounts, func(m cgroupMount) bool { return m.version == 2 }) {
		err = errors.New("no cgroup hierarchy of version 2 is mounted")
	}
	err = errors.Join(rootOnly(), err)
	for _, name := range []string{"systemd", "busctl", "dbus-daemon"} {
		if _, lookErr := exec.LookPath(name); lookErr != nil {
			err = errors.Join(err, fmt.Errorf("%s is not installed", name))
		}
	}
	check(t, "usermanager", err)
}
