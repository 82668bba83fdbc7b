package attack_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

func init() {
	probes["unmount the view"] = func() error { return unix.Unmount(".", 0) }
	probes["detach the view"] = func() error { return unix.Unmount(".", unix.MNT_DETACH) }
	probes["unmount /proc"] = func() error { return unix.Unmount("/proc", unix.MNT_DETACH) }
	probes["bind over the view"] = func() error { return unix.Mount("/tmp", ".", "", unix.MS_BIND, "") }
	probes["remount the view"] = func() error { return unix.Mount("", ".", "", unix.MS_REMOUNT|unix.MS_BIND, "") }
	probes["move the view"] = func() error { return unix.Mount(".", "/tmp", "", unix.MS_MOVE, "") }
	probes["remount /usr writable"] = func() error { return unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, "") }
	probes["make everything shared"] = func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") }
	probes["mount a tmpfs"] = func() error { return unix.Mount("x", "/tmp", "tmpfs", 0, "") }
	probes["pivot_root"] = func() error { return unix.PivotRoot("/tmp", "/tmp") }
	probes["chroot"] = func() error { return unix.Chroot("/tmp") }
	probes["fsopen"] = func() error { _, err := unix.Fsopen("tmpfs", 0); return err }
	probes["open_tree"] = func() error { _, err := unix.OpenTree(unix.AT_FDCWD, ".", unix.OPEN_TREE_CLONE); return err }
	probes["move_mount"] = func() error { return unix.MoveMount(unix.AT_FDCWD, ".", unix.AT_FDCWD, "/tmp", 0) }
	probes["mount_setattr"] = func() error {
		return unix.MountSetattr(unix.AT_FDCWD, "/usr", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	}
	probes["open /dev/fuse"] = func() error { _, err := unix.Open("/dev/fuse", unix.O_RDWR, 0); return err }
}

// The view can be neither unmounted nor covered, and no other mount can be changed.
func TestMountsCannotBeChanged(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a": "a\n", ".env": "secret\n"}, who...)
		wantAnswers(t, s, map[string]string{
			"unmount the view":       "EPERM",
			"detach the view":        "EPERM",
			"unmount /proc":          "EPERM",
			"bind over the view":     "EPERM",
			"remount the view":       "EPERM",
			"move the view":          "EPERM",
			"remount /usr writable":  "EPERM",
			"make everything shared": "EPERM",
			"mount a tmpfs":          "EPERM",
			"pivot_root":             "EPERM",
			"chroot":                 "EPERM",
			"fsopen":                 "EPERM",
			"open_tree":              "EPERM",
			"move_mount":             "EPERM",
			"mount_setattr":          "EPERM",
			"open /dev/fuse":         "ENOENT",
		})
		// The helpers that are setuid outside are powerless inside.
		prints(t, s, `for undo in "fusermount3 -u ." "fusermount3 -uz ." "fusermount -u ." "umount ." "umount -l ." "mount -o remount,rw /usr"; do
	$undo 2>&- && echo "$undo succeeded"
done
touch /usr/x 2>&- && echo wrote to /usr
cat a
cat .env 2>&-
grep -c " $PWD fuse" /proc/mounts`, "a\n1\n")
	})
}
