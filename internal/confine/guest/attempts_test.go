package guest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestSocketsHaveNames(t *testing.T) {
	for want, socket := range map[string][3]uint32{
		"vsock socket":                {unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		"packet socket":               {unix.AF_PACKET, unix.SOCK_RAW, 0x0300},
		"raw socket (ICMP)":           {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		"raw socket (protocol 255)":   {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		"ICMP socket":                 {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		"netlink socket (protocol 9)": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT},
		"SCTP socket":                 {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		"L2TP socket":                 {unix.AF_INET6, unix.SOCK_DGRAM, 115},
		"SMC socket":                  {unix.AF_INET, unix.SOCK_STREAM, 256},
		"DCCP socket":                 {unix.AF_INET, unix.SOCK_DCCP, 0},
		"socket of family 4294967294": {othersFamily - 1, 0, 0},
		OtherSockets:                  {othersFamily, 0, 0},
	} {
		if got := socketKind(socket[0], socket[1], socket[2]); got != want {
			t.Errorf("socket(%v) is called %q, want %q", socket, got, want)
		}
	}
	if got := socketKind(unix.AF_INET, unix.SOCK_PACKET, 0); got != "packet socket" {
		t.Errorf("a packet socket of the internet's family is called %q", got)
	}
}

// Whatever PID 1 says of an attempt is refused or becomes a short report.
func TestAttemptsOfAHostilePID1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := append([]byte{byte(msgAttempt)}, rapid.SliceOfN(rapid.Byte(), 0, maxIncoming-1).Draw(t, "message")...)
		r, err := decodeAttempt(message)
		if err != nil {
			return
		}
		if len(r.Kind) == 0 || len(r.Kind) > 64 || len(r.Program) > commBytes || r.Count < 1 {
			t.Fatalf("got %+v", r)
		}
	})
}

// With more kinds of attempts than one report distinguishes, the others count together, and nothing
// is lost when the supervisor does not read for a while.
func TestAttemptsAreCountedAndBounded(t *testing.T) {
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	supervisor, err := newLink(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer supervisor.file.Close()
	p := &pid1{socket: int(theirs.Fd()), attempts: attempts{counts: map[attempt]uint32{}}}
	const kinds, each = 1000, 3
	for range each {
		for i := range uint32(kinds) {
			p.attempts.add(attempt{family: 100 + i})
		}
	}
	full := fill(t, p.socket)
	if err := p.report(false); err != nil {
		t.Fatal(err)
	}
	if got := len(p.attempts.counts); got != maxAttempts+1 {
		t.Errorf("%d kinds are counted while nobody reads, want %d", got, maxAttempts+1)
	}
	drain(t, supervisor, full)
	if err := p.report(true); err != nil {
		t.Fatal(err)
	}
	var got []int
	var others int
	for _, message := range drain(t, supervisor, maxAttempts+1) {
		r, err := decodeAttempt(message)
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind == OtherSockets {
			others = r.Count
			continue
		}
		got = append(got, r.Count)
	}
	if diff := cmp.Diff(slices.Repeat([]int{each}, maxAttempts), got); diff != "" || others != each*(kinds-maxAttempts) {
		t.Errorf("%d of other kinds; distinguished (-want +got):\n%s", others, diff)
	}
}

// fill sends until the peer's socket is full, and returns how many messages.
func fill(t *testing.T, fd int) (n int) {
	t.Helper()
	for sendWith(unix.MSG_DONTWAIT, fd, []byte{0}) == nil {
		n++
	}
	if n == 0 {
		t.Fatal("nothing can be sent")
	}
	return n
}

func drain(t *testing.T, supervisor link, n int) (messages [][]byte) {
	t.Helper()
	if err := supervisor.file.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for range n {
		r, err := supervisor.receive()
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, r.message)
	}
	return messages
}
