package network_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

const getSockets = "get sockets"

// refusedSockets are sockets that no program gets, with the answer and the kind in the audit log.
var refusedSockets = []struct {
	family, kind, protocol int
	errno                  unix.Errno
	name                   string
}{
	{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, unix.EPERM, "raw socket (ICMP)"},
	{unix.AF_INET6, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.IPPROTO_UDP, unix.EPERM, "raw socket (UDP)"},
	{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, unix.EPERM, "raw socket (protocol 255)"},
	{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP, unix.EACCES, "ICMP socket"},
	{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6, unix.EACCES, "ICMP socket"},
	{unix.AF_PACKET, unix.SOCK_RAW, 0, unix.EAFNOSUPPORT, "packet socket"},
	{unix.AF_INET, unix.SOCK_PACKET, 0, unix.EPERM, "packet socket"},
	{unix.AF_VSOCK, unix.SOCK_STREAM, 0, unix.EAFNOSUPPORT, "vsock socket"},
	{unix.AF_ALG, unix.SOCK_SEQPACKET, 0, unix.EAFNOSUPPORT, "alg socket"},
	{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT, unix.EPROTONOSUPPORT, "netlink socket (protocol 9)"},
	{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP, unix.EPROTONOSUPPORT, "SCTP socket"},
	{unix.AF_INET, unix.SOCK_DCCP, 0, unix.ESOCKTNOSUPPORT, "DCCP socket"},
}

// floodFamily is a family that does not exist. It and those after it are tried floods times.
const floodFamily, floods = 100, 5000

// getEach tries refusedSockets, then a flood of others, of many kinds and under many names. It
// prints how long the flood took, in milliseconds.
func getEach([]string) int {
	runtime.LockOSThread() // which has a name of its own
	if err := listenFirst(); !errors.Is(err, unix.EBUSY) {
		fmt.Fprintln(os.Stderr, "take the place of PID 1's listener:", err)
		return 1
	}
	get := func(family, kind, protocol int, want unix.Errno) bool {
		fd, err := unix.Socket(family, kind, protocol)
		if err == nil {
			unix.Close(fd)
		}
		if !errors.Is(err, want) {
			fmt.Fprintf(os.Stderr, "socket(%d, %#x, %d): got %v, want %v\n", family, kind, protocol, err, want)
			return false
		}
		return true
	}
	for _, s := range refusedSockets {
		if !get(s.family, s.kind, s.protocol, s.errno) {
			return 1
		}
	}
	begin := time.Now()
	for i := range floods {
		name, err := unix.BytePtrFromString(strconv.Itoa(i % 50))
		if err == nil {
			err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0)
		}
		if err != nil || !get(floodFamily+i%50, unix.SOCK_STREAM, 0, unix.EAFNOSUPPORT) {
			return 1
		}
	}
	fmt.Println(time.Since(begin).Milliseconds())
	return 0
}

// listenFirst installs a filter that allows everything, with a listener.
func listenFirst() error {
	filter := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// socketRefusals returns how often each kind of socket was refused, and by how many records.
func socketRefusals(t *testing.T, log string) (counts map[string]int, records int) {
	t.Helper()
	counts = map[string]int{}
	for line := range strings.Lines(log) {
		var e struct {
			Event, Socket, Host, Program string
			Count                        int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Event != "network_denied" || e.Socket == "" {
			continue
		}
		if e.Host != "" || e.Count < 1 || e.Program == "" && e.Socket != "(others)" {
			t.Errorf("the audit log has %s", line)
		}
		counts[e.Socket] += e.Count
		records++
	}
	return counts, records
}

// Each attempt to get a refused socket is in the audit log when the command has ended, and a flood
// of them takes bounded space. Without a network it is the same.
func TestRefusedSocketsAreRecorded(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.RunProgram(getSockets, nil)
		var took int
		if _, err := fmt.Sscan(r.Stdout, &took); err != nil || r.Code != 0 {
			t.Fatalf("exit %d\n%s%s", r.Code, r.Stdout, r.Stderr)
		}
		contains(t, "the summary", r.Stderr, "agentfense: network: refused: (others) (", "socket of family ")
		log, after, _ := strings.Cut(s.Agentfense("audit", s.Name, "--json").Stdout, `"event":"command_executed"`)
		if strings.Contains(after, `"socket":`) {
			t.Error("attempts are recorded after the end of the command that made them")
		}
		log = log[:strings.LastIndexByte(log, '\n')+1] // whole lines
		counts, records := socketRefusals(t, log)
		want := map[string]int{}
		for _, socket := range refusedSockets {
			want[socket.name]++
		}
		flooded := 0
		for name, n := range counts {
			if name == "(others)" || strings.HasPrefix(name, "socket of family ") {
				flooded += n
				delete(counts, name)
			} else if n != want[name] {
				t.Errorf("%s: refused %d times, %d are recorded", name, want[name], n)
			}
		}
		if len(counts) != len(want) {
			t.Errorf("kinds that are recorded: got %v, want %v", counts, want)
		}
		if flooded != floods {
			t.Errorf("of a flood of %d attempts %d are recorded", floods, flooded)
		}
		const perReport, pause = 33, 100 // records, milliseconds
		if most := len(refusedSockets) + perReport*(took/pause+3); records > most {
			t.Errorf("a flood of %d ms took %d records, want at most %d", took, records, most)
		}
		if !strings.Contains(s.Agentfense("audit", s.Name).Stdout, "raw socket (ICMP) to program: no program gets a socket of this kind") {
			t.Error("the audit log does not say in words what was refused")
		}
	})
}
