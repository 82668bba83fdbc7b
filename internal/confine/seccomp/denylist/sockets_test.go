package denylist

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	ours "github.com/agentfense/agentfense/internal/confine/seccomp"
)

const garbage = 0xdeadbeef << 32 // of the half of an argument that the kernel does not read

// eachSocket calls do with sockets of each family and type, and of each protocol that a rule tells
// apart, with flags, and with the values beside them.
func eachSocket(do func(call string, family, kind, protocol uint64)) {
	families := append(upTo(48), 0xff, 1<<31, 0xffffffff, ^uint64(0), garbage|unix.AF_INET, garbage|unix.AF_NETLINK, garbage|unix.AF_VSOCK)
	kinds := append(upTo(16),
		unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK,
		unix.SOCK_DCCP|unix.SOCK_CLOEXEC, unix.SOCK_RAW|0x10, unix.SOCK_DGRAM|1<<31, garbage|unix.SOCK_RAW, garbage|unix.SOCK_PACKET)
	protocols := append(upTo(3),
		16, 17, unix.IPPROTO_DCCP, 57, unix.IPPROTO_ICMPV6, 114, ours.ProtocolL2TP, unix.IPPROTO_SCTP, 133, unix.IPPROTO_UDPLITE, 254, unix.IPPROTO_RAW,
		ours.ProtocolSMC, 257, unix.IPPROTO_MPTCP, 263, 0x10000|unix.IPPROTO_SCTP, 0xffffffff, ^uint64(0), garbage, garbage|unix.IPPROTO_ICMP, garbage|unix.IPPROTO_SCTP)
	for _, call := range []string{"socket", "socketpair"} {
		for _, family := range families {
			for _, kind := range kinds {
				for _, protocol := range protocols {
					do(call, family, kind, protocol)
				}
			}
		}
	}
}

// upTo returns the numbers from 0 to n.
func upTo(n uint64) (all []uint64) {
	for i := range n + 1 {
		all = append(all, i)
	}
	return all
}

// PID 1 answers an attempt as the filter does that does not notify it.
func TestPID1AnswersAsTheFilter(t *testing.T) {
	j := newJudge(t, runtime.GOARCH)
	refused := 0
	eachSocket(func(call string, family, kind, protocol uint64) {
		want := j.answer(t, j.call(t, call, family, kind, protocol))
		if want == allow {
			return
		}
		refused++
		got := ours.SocketErrno(call == "socketpair", family, kind, protocol)
		if uint32(errno(got)) != want {
			t.Fatalf("%s(%#x, %#x, %#x): PID 1 answers %d, the filter %#x", call, family, kind, protocol, got, want)
		}
	})
	if refused == 0 {
		t.Error("no socket is refused")
	}
}

// The filter of all other calls leaves sockets to the filter of sockets, and that all other calls.
func TestEachFilterHasItsOwnCalls(t *testing.T) {
	sockets := []string{"socket", "socketpair"}
	for _, r := range rules() {
		if slices.ContainsFunc(r.calls, func(call string) bool { return slices.Contains(sockets, call) }) {
			t.Errorf("the filter of all other calls refuses %v", r.calls)
		}
	}
	for _, r := range socketRules() {
		if slices.ContainsFunc(r.calls, func(call string) bool { return !slices.Contains(sockets, call) }) {
			t.Errorf("the filter of sockets refuses %v", r.calls)
		}
	}
}

// The kernel refuses raw and packet sockets to a program without capabilities, so that a rule for
// them changes no answer.
func TestKernelRefusesTheSameByItself(t *testing.T) {
	j := newJudge(t, runtime.GOARCH)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // to the end: it has no capabilities any more
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Error(err)
			return
		}
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			for _, kind := range []int{unix.SOCK_RAW, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.SOCK_RAW | 0x10, unix.SOCK_PACKET} {
				for _, protocol := range []int{-1, 0, unix.IPPROTO_ICMP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6, unix.IPPROTO_RAW, 0x1000} {
					want := j.answer(t, j.call(t, "socket", uint64(family), uint64(kind), uint64(protocol)))
					fd, err := unix.Socket(family, kind, protocol)
					got, failed := errors.AsType[unix.Errno](err)
					if !failed {
						unix.Close(fd)
						t.Errorf("the kernel allows socket(%d, %#x, %d)", family, kind, protocol)
					} else if want != allow && uint32(errno(got)) != want {
						t.Errorf("socket(%d, %#x, %d): the kernel answers %v, the filter %#x", family, kind, protocol, got, want)
					}
				}
			}
		}
	}()
	<-done
}
