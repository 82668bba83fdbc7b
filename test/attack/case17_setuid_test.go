package attack_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// No file of the view has privileges: setuid, setgid and file capabilities are dropped when
// set, not shown if the source has them, without effect on execution, and absent after
// apply.
func TestPrivilegeBitsAreDropped(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"suid": "#!/bin/sh\nid -u\n", "changed": "x", "moved": "x", "shared/old": "x"}, who...)
		for _, name := range []string{"suid", "changed", "moved"} {
			if err := os.Chmod(filepath.Join(s.Source, name), 0o755|os.ModeSetuid|os.ModeSetgid); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(s.Source, "shared"), 0o755|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			if err := unix.Setxattr(filepath.Join(s.Source, "moved"), "security.capability", bindService, 0); err != nil {
				t.Fatal(err)
			}
		}
		untouched := s.Untouched()
		passes(t, s, setPrivileges, nil, "--preset", "full-access")
		untouched()
		agentfense(t, s, "diff", s.Name)
		agentfense(t, s, "apply", s.Name)
		checkApplied(t, s.Source)
	})
}

// bindService is cap_net_bind_service, permitted and effective, as a file
// carries it (struct vfs_cap_data, linux/capability.h).
var bindService = []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

func checkApplied(t *testing.T, source string) {
	t.Helper()
	const privileges = unix.S_ISUID | unix.S_ISGID
	for _, name := range []string{"made", "copied", "dir", "changed", "renamed", "shared/new"} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(source, name), &st); err != nil {
			t.Error(err)
		}
		if st.Mode&privileges != 0 {
			t.Errorf("applied, %s has mode %o", name, st.Mode)
		}
		if _, err := unix.Getxattr(filepath.Join(source, name), "security.capability", nil); !errors.Is(err, unix.ENODATA) {
			t.Errorf("applied, the capabilities of %s: %v", name, err)
		}
	}
	// What the user shares among a group stays shared; what was not touched
	// keeps what it had.
	for name, want := range map[string]uint32{"shared": unix.S_IFDIR | unix.S_ISGID | 0o755, "suid": unix.S_IFREG | privileges | 0o755} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(source, name), &st); err != nil || st.Mode != want {
			t.Errorf("applied, %s has mode %o, want %o, %v", name, st.Mode, want, err)
		}
	}
}

var setPrivileges = program("set privileges", func(in *inside, _ []string) {
	const privileges = unix.S_ISUID | unix.S_ISGID
	mode := func(name string) uint32 {
		var st unix.Stat_t
		in.works("stat "+name, unix.Stat(name, &st))
		return st.Mode & 0o7777
	}
	for _, name := range []string{"suid", "changed", "moved", "shared"} {
		in.is("mode shown of "+name, mode(name), uint32(0o755))
	}
	fd, err := unix.Open("made", unix.O_CREAT|unix.O_WRONLY, 0o755|privileges)
	in.works("create", err)
	in.is("mode of a file made setuid", mode("made")&privileges, uint32(0))
	in.works("fchmod", unix.Fchmod(fd, 0o755|privileges))
	in.works("close", unix.Close(fd))
	in.works("chmod", unix.Chmod("made", 0o755|privileges))
	in.is("mode after chmod", mode("made"), uint32(0o755))
	in.works("mkdir", unix.Mkdir("dir", 0o755|privileges))
	in.works("chmod", unix.Chmod("dir", 0o755|privileges))
	in.is("mode of a directory", mode("dir"), uint32(0o755))
	in.works("mknod", unix.Mknod("copied", unix.S_IFREG|0o755|privileges, 0))
	in.is("mode of a file of mknod", mode("copied"), uint32(0o755))
	in.works("change", os.WriteFile("changed", []byte("y"), 0o755))
	in.works("rename", unix.Rename("moved", "renamed"))
	in.works("write", os.WriteFile("renamed", []byte("y"), 0o755))
	in.works("new", os.WriteFile("shared/new", nil, 0o755))
	for _, name := range []string{"made", "changed", "renamed", "suid"} {
		in.refused("set capabilities of "+name, unix.Setxattr(name, "security.capability", bindService, 0), unix.EOPNOTSUPP, unix.EPERM)
	}

	var fs unix.Statfs_t
	in.works("statfs", unix.Statfs(".", &fs))
	in.is("mounted nosuid and nodev", fs.Flags&(unix.ST_NOSUID|unix.ST_NODEV), int64(unix.ST_NOSUID|unix.ST_NODEV))
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	in.works("prctl", err)
	in.is("no new privileges", nnp, 1)
	real, effective, saved := unix.Getresuid()
	in.is("one uid", [2]bool{real == effective, effective == saved}, [2]bool{true, true})
})
