package attack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// wrapped lets every command of s go through a script, which finds agentfense
// as $real.
func wrapped(t *testing.T, s *harness.Sandbox, script string) {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "agentfense")
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nexport real='%s'\n%s\n", s.Binary, script), 0o755); err != nil {
		t.Fatal(err)
	}
	s.Binary = path
}

// On a host where an ordinary user may not make a user namespace, no sandbox starts without
// one.
func TestWithoutUserNamespacesNothingStarts(t *testing.T) {
	testenv.Command(t, "unshare")
	s := harness.New(t, binary, nil, harness.Ordinary)
	wrapped(t, s, `exec unshare --user --map-current-user --keep-caps sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$real" "$@"' sh "$@"`)
	refusedToStart(t, s, nil, "user namespace", "sysctl -w user.max_user_namespaces")
}

// withoutSeccomp forbids itself and what it becomes to load a filter, and
// becomes what its arguments say.
const withoutSeccomp = "without seccomp"

func init() {
	programs[withoutSeccomp] = func(args []string) int {
		runtime.LockOSThread() // exec keeps this thread's filter
		err := forbidSeccomp()
		if err == nil {
			err = unix.Exec(args[0], args, os.Environ())
		}
		fmt.Fprintln(os.Stderr, withoutSeccomp+":", err)
		return 99
	}
}

func forbidSeccomp() error {
	const call, firstArgument = 0, 16 // of struct seccomp_data
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	equal := func(value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	answer := func(value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
	}
	filter := []unix.SockFilter{
		load(call),
		equal(unix.SYS_SECCOMP, 3, 0),
		equal(unix.SYS_PRCTL, 0, 3),
		load(firstArgument),
		equal(unix.PR_SET_SECCOMP, 0, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)),
		answer(unix.SECCOMP_RET_ALLOW),
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// On a kernel without seccomp filters, no sandbox starts without one.
func TestWithoutSeccompNothingStarts(t *testing.T) {
	testenv.Root(t)
	s := harness.New(t, binary, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wrapped(t, s, `AGENTFENSE_TEST_PROGRAM="`+withoutSeccomp+`" exec `+self+` "$real" "$@"`)
	wantCode(t, s.Agentfense("version"), 0)
	refusedToStart(t, s, nil, "SECCOMP")
}
