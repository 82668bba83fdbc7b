package attack_test

import (
	elf "encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

func init() {
	call := func(number uintptr, args ...uintptr) probe {
		return func() error { return syscallError(number, args...) }
	}
	const x32 = 0x40000000
	probes["getpid by x32"] = call(x32 | unix.SYS_GETPID)
	probes["mount by x32"] = call(x32 | unix.SYS_MOUNT)
	probes["x32 ptrace without the bit"] = call(521)
	probes["a call that is not known"] = call(4000)
	probes["io_uring_setup"] = call(unix.SYS_IO_URING_SETUP, 1, 0)
	probes["io_uring_enter"] = call(unix.SYS_IO_URING_ENTER)
	probes["io_uring_register"] = call(unix.SYS_IO_URING_REGISTER)
	probes["bpf"] = call(unix.SYS_BPF)
	probes["perf_event_open"] = call(unix.SYS_PERF_EVENT_OPEN)
	probes["userfaultfd"] = call(unix.SYS_USERFAULTFD)
	probes["init_module"] = call(unix.SYS_INIT_MODULE)
	probes["kexec_load"] = call(unix.SYS_KEXEC_LOAD)
	probes["open_by_handle_at"] = call(unix.SYS_OPEN_BY_HANDLE_AT)
	probes["getpid"] = call(unix.SYS_GETPID)
	for name, value := range map[string]uintptr{"the usual": 0, "a 32-bit program's": 8, "without randomisation": 0x40000, "with executable data": 0x400000} {
		probes["personality "+name] = call(unix.SYS_PERSONALITY, value)
	}
	probes["memfd_secret"] = call(unix.SYS_MEMFD_SECRET)
	probes["modify_ldt"] = func() error {
		if runtime.GOARCH != "amd64" {
			return unix.ENOSYS // the call is amd64's alone
		}
		return syscallError(modifyLDT, 0, 0, 0)
	}
	for name, protocol := range map[string]int{
		"route": unix.NETLINK_ROUTE, "audit": unix.NETLINK_AUDIT, "netfilter": unix.NETLINK_NETFILTER, "uevent": unix.NETLINK_KOBJECT_UEVENT,
		"socket statistics": unix.NETLINK_SOCK_DIAG, "ipsec": unix.NETLINK_XFRM, "generic": unix.NETLINK_GENERIC, "connector": unix.NETLINK_CONNECTOR,
	} {
		probes["netlink "+name] = func() error { _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, protocol); return err }
	}
	probes["io_setup"] = call(unix.SYS_IO_SETUP, 1, 0)
	for name, protocol := range map[string]int{"sctp": unix.IPPROTO_SCTP, "dccp": unix.IPPROTO_DCCP, "l2tp": protocolL2TP} {
		probes["transport "+name] = func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, protocol); return err }
	}
	probes["transport dccp by its type"] = func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_DCCP, 0); return err }
	for name, family := range map[string]int{"vsock": unix.AF_VSOCK, "packet": unix.AF_PACKET, "alg": unix.AF_ALG, "bluetooth": unix.AF_BLUETOOTH} {
		probes["socket "+name] = func() error { _, err := unix.Socket(family, unix.SOCK_RAW, 0); return err }
	}
}

// protocolL2TP is IPPROTO_L2TP of linux/in.h.
const protocolL2TP = 115

// modifyLDT is the number of modify_ldt(2) on amd64.
const modifyLDT = 154

// The filter has no gap beside the calls it names.
func TestSystemCallsAreFiltered(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		wantAnswers(t, s, map[string]string{
			"getpid": "done", "getpid by x32": "ENOSYS", "mount by x32": "ENOSYS", "x32 ptrace without the bit": "ENOSYS",
			"a call that is not known": "ENOSYS",
			"io_uring_setup":           "ENOSYS", "io_uring_enter": "ENOSYS", "io_uring_register": "ENOSYS",
			"bpf": "EPERM", "perf_event_open": "EPERM", "userfaultfd": "EPERM", "init_module": "EPERM", "kexec_load": "EPERM",
			"open_by_handle_at": "EPERM",
			"memfd_secret":      "ENOSYS", "modify_ldt": "ENOSYS",
			"personality the usual": "done", "personality a 32-bit program's": "done",
			"personality without randomisation": "EPERM", "personality with executable data": "EPERM",
			"netlink route": "done", "netlink audit": "EPROTONOSUPPORT", "netlink netfilter": "EPROTONOSUPPORT", "netlink uevent": "EPROTONOSUPPORT",
			"netlink socket statistics": "EPROTONOSUPPORT", "netlink ipsec": "EPROTONOSUPPORT", "netlink generic": "EPROTONOSUPPORT", "netlink connector": "EPROTONOSUPPORT",
			"io_setup": "ENOSYS", "transport sctp": "EPROTONOSUPPORT", "transport dccp": "EPROTONOSUPPORT", "transport l2tp": "EPROTONOSUPPORT",
			"transport dccp by its type": "ESOCKTNOSUPPORT",
			"socket vsock":               "EAFNOSUPPORT", "socket packet": "EAFNOSUPPORT", "socket alg": "EAFNOSUPPORT", "socket bluetooth": "EAFNOSUPPORT",
		})
		prints(t, s, "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status | cut -f2", "1\n2\n")
	})
}

// A call by the entry of 32-bit programs ends the program that made it.
func TestForeignEntryKills(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("amd64 has the entry of another architecture")
	}
	s := harness.New(t, binary, nil)
	path := filepath.Join(s.Source, "int80")
	if err := os.WriteFile(path, exitBy32Bit(7), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(path).Run(); err == nil || err.Error() != "exit status 7" {
		t.Skipf("this kernel has no such entry: %v", err)
	}
	wantCode(t, s.Agentfense("run", "--name", s.Name, "--preset", "full-access", "--", "./int80"), 128+int(unix.SIGSYS))
}

// exitBy32Bit is a 64-bit program that ends with code by exit(2) of i386.
func exitBy32Bit(code byte) []byte {
	const base, headers = 0x400000, 64 + 56
	text := []byte{0xb8, 1, 0, 0, 0, 0xbb, code, 0, 0, 0, 0xcd, 0x80, 0x0f, 0x0b} // mov eax, 1; mov ebx, code; int 0x80; ud2
	image := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 9)...)
	le := elf.LittleEndian
	image = le.AppendUint16(image, 2)    // executable
	image = le.AppendUint16(image, 0x3e) // x86-64
	image = le.AppendUint32(image, 1)
	for _, v := range []uint64{base + headers, 64, 0} { // entry, program headers, section headers
		image = le.AppendUint64(image, v)
	}
	image = le.AppendUint32(image, 0)
	for _, v := range []uint16{64, 56, 1, 0, 0, 0} {
		image = le.AppendUint16(image, v)
	}
	image = le.AppendUint32(image, 1) // load
	image = le.AppendUint32(image, 5) // read, execute
	size := uint64(headers + len(text))
	for _, v := range []uint64{0, base, base, size, size, 0x1000} {
		image = le.AppendUint64(image, v)
	}
	return append(image, text...)
}
