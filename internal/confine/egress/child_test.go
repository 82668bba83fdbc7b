package egress

import (
	"errors"
	"math"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/thread"
)

// The process is started from a thread that has these files left, and its program.
func TestTheProcessReadsTheResolversFilesAlone(t *testing.T) {
	testenv.Landlock(t, 2)
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	e := &Egress{options: Options{Program: program}}
	errs := make(chan error)
	thread.Go(func() {
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		errs <- errors.Join(err, e.restrict())
		for _, path := range []string{"/etc/hosts", "/proc/self/exe", "/proc/version", "/usr/bin/env", "/dev/null"} {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			errs <- err
		}
	})
	for i, want := range []error{nil, nil, nil, unix.EACCES, unix.EACCES, unix.EACCES} {
		if err := <-errs; !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("step %d: got %v, want %v", i, err, want)
		}
	}
}

// newSupervisor is an Egress that has heard nothing yet from a process, which may say anything.
func newSupervisor(t *testing.T) (e *Egress, c *child, allowed *[]Allowed, denied *[]Denied) {
	t.Helper()
	rules, err := allowlist.Parse([]string{"example.com", "*.example.org"})
	if err != nil {
		t.Fatal(err)
	}
	allowed, denied = new([]Allowed), new([]Denied)
	e = &Egress{
		options: Options{
			Rules:   rules,
			Allowed: func(a Allowed) { *allowed = append(*allowed, a) },
			Denied:  func(d Denied) { *denied = append(*denied, d) },
		},
		rules: rules, ledger: quota.NewLedger(nil, nil),
		hosts: map[allowlist.Host]*host{"example.com": {}},
	}
	return e, &child{open: map[uint64]Allowed{}}, allowed, denied
}

func TestConnectionsThatCannotBeEndTheProcess(t *testing.T) {
	for name, told := range map[string]Allowed{
		"to a host that no rule names":    {Host: "evil.net", Port: 443},
		"to a port that no rule names":    {Host: "example.com", Port: 80},
		"to a name that was never given":  {Host: "a.example.org", Port: 443},
		"to a long name":                  {Host: strings.Repeat("a.", 1<<16) + "example.org", Port: 443},
		"to an address with a text in it": {Host: "example.com", Port: 443, Addr: netip.MustParseAddr("fe80::1%\x1b[2J")},
		"by an identity that another has": {Host: "example.com", Port: 443},
	} {
		t.Run(name, func(t *testing.T) {
			e, c, allowed, _ := newSupervisor(t)
			c.open[7] = Allowed{Host: "example.com", Port: 443}
			id := uint64(8)
			if strings.HasPrefix(name, "by an identity") {
				id = 7
			}
			if err := e.take(c, report{Opened: &opened{id, told}}); err == nil {
				t.Error("it was believed")
			}
			if len(c.open) != 1 || len(*allowed) != 0 {
				t.Errorf("kept %d connections, recorded %v", len(c.open), *allowed)
			}
		})
	}
}

// What a process tells of a connection is bounded, and its rule is the one that allows it.
func TestReportsAreBounded(t *testing.T) {
	e, c, allowed, denied := newSupervisor(t)
	long := strings.Repeat("x", maxMessage)
	for _, r := range []report{
		{Opened: &opened{1, Allowed{Host: "example.com", Port: 443, Rule: long, Error: long}}},
		{Closed: []closed{{ID: 1, Sent: -5, Received: math.MinInt64, Requests: math.MaxInt64}}},
		{Denied: &Denied{Host: long, Reason: long, Count: math.MinInt}},
		{Denied: &Denied{Host: "a", Reason: "b", Count: math.MaxInt}},
	} {
		if err := e.take(c, r); err != nil {
			t.Fatal(err)
		}
	}
	a := (*allowed)[0]
	if a.Rule != "example.com:443" || len(a.Error) != maxErrorText || a.Sent != 0 || a.Received != 0 || a.Requests != maxSum {
		t.Errorf("recorded rule %.20q, an error of %d bytes, %d and %d bytes, %d requests", a.Rule, len(a.Error), a.Sent, a.Received, a.Requests)
	}
	for i, d := range *denied {
		if len(d.Host) > maxAsked || len(d.Reason) > maxReason || d.Count < 1 || d.Count > maxCount {
			t.Errorf("refusal %d: %d bytes, %d bytes, %d times", i, len(d.Host), len(d.Reason), d.Count)
		}
	}
}

func TestAProgramWithSharedLibrariesIsToldHowToBuildIt(t *testing.T) {
	for err, want := range map[error]bool{&os.PathError{Op: "fork/exec", Path: "/x", Err: unix.EACCES}: true, unix.EAGAIN: false} {
		if got := notStarted(err); strings.Contains(got.Error(), "CGO_ENABLED=0") != want {
			t.Errorf("notStarted(%v) = %v", err, got)
		}
	}
}
