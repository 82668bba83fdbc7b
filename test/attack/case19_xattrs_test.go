package attack_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// The view has no extended attributes. So a program cannot forge privileges, access lists
// or marks of an overlay, cannot fill the disk with them, and cannot read those of the
// source.
func TestThereAreNoExtendedAttributes(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		eachHiding(t, func(t *testing.T, h hiding) { thereAreNoExtendedAttributes(t, h, who...) })
	})
}

func thereAreNoExtendedAttributes(t *testing.T, h hiding, who ...harness.Option) {
	s := harness.New(t, binary, map[string]string{"f": "f", "dir/": "", "secret.pem": "s", "r": "r"}, who...)
	f := filepath.Join(s.Source, "f")
	for _, path := range []string{f, filepath.Join(s.Source, "secret.pem")} {
		if err := unix.Setxattr(path, "user.note", []byte("the host's"), 0); err != nil {
			t.Fatal(err)
		}
	}
	untouched := s.Untouched()
	passes(t, s, useAttributes, h.args(), append(h.flags("*.pem"), "--preset", "full-access", "--read", "r")...)
	untouched()
	agentfense(t, s, "apply", s.Name)
	for _, name := range []string{"f", "dir", "new"} {
		buf := make([]byte, 1000)
		n, err := unix.Listxattr(filepath.Join(s.Source, name), buf)
		if err != nil {
			t.Error(err)
		}
		for _, attribute := range attributes {
			if got := string(buf[:max(n, 0)]); got == attribute+"\x00" {
				t.Errorf("applied, %s has %q", name, got)
			}
		}
	}
}

var attributes = []string{
	"user.x", "security.capability", "security.selinux", "security.evm", "trusted.overlay.opaque", "trusted.x",
	"user.overlay.opaque", "user.containers.override_stat", "system.posix_acl_access", "system.posix_acl_default", "user.fuseoverlayfs.opaque",
}

var useAttributes = program("use attributes", func(in *inside, args []string) {
	in.works("write", os.WriteFile("new", []byte("n"), 0o644))
	value := make([]byte, 60_000)
	buf := make([]byte, 1000)
	for _, name := range []string{"secret.pem", "absent.pem", "absent"} {
		for _, attribute := range []string{"user.x", "security.capability", "system.posix_acl_access"} {
			_, err := unix.Lgetxattr(name, attribute, buf)
			in.errno("get "+attribute+" of "+name, err, unix.ENOENT)
			in.errno("set "+attribute+" of "+name, unix.Lsetxattr(name, attribute, value[:1], 0), unix.ENOENT)
		}
	}
	names := []string{"f", "dir", "new", "r", "."}
	for _, name := range []string{"secret.pem", "gone.pem"} {
		in.errno("make "+name, opened(name, unix.O_CREAT|unix.O_WRONLY), hidingOf(args).making())
		if hidingOf(args) == hidesOwn {
			names = append(names, name) // an own entry has none either, nor the source's
		}
	}
	for _, name := range names {
		for _, attribute := range attributes {
			// trusted and posix_acl are refused by the kernel itself.
			err := unix.Lsetxattr(name, attribute, value, 0)
			in.refused("set "+attribute+" of "+name, err, unix.EOPNOTSUPP, unix.EPERM, unix.EACCES, unix.EINVAL)
			_, err = unix.Lgetxattr(name, attribute, buf)
			in.refused("get "+attribute+" of "+name, err, unix.EOPNOTSUPP, unix.ENODATA, unix.EPERM)
			err = unix.Lremovexattr(name, attribute)
			if attribute == "system.posix_acl_default" && err == nil {
				in.is("only the kernel says so of "+name, defaultListOf(name), "never there")
				continue
			}
			in.refused("remove "+attribute+" of "+name, err, unix.EOPNOTSUPP, unix.EPERM, unix.EACCES)
		}
		n, err := unix.Llistxattr(name, buf)
		in.is("list of "+name, n <= 0, true)
		in.refused("list of "+name, err, unix.EOPNOTSUPP, 0)
	}
	_, err := unix.Lgetxattr("f", "user.note", buf)
	in.errno("the source's attribute", err, unix.EOPNOTSUPP)
})

// defaultListOf explains why the kernel lets the default access list of a file
// be removed: only directories have one, so set_posix_acl of fs/posix_acl.c
// takes it for gone, on every file system, and asks none.
func defaultListOf(name string) string {
	const native = "/tmp/native"
	var st unix.Stat_t
	switch {
	case unix.Lstat(name, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return "a directory's"
	case os.WriteFile(native, nil, 0o644) != nil || unix.Lremovexattr(native, "system.posix_acl_default") != nil:
		return "refused elsewhere"
	}
	return "never there"
}
