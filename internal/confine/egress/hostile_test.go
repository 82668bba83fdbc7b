package egress

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/netns"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// wired gives the child a wire and returns the other end, at which a process may write anything.
func wired(t *testing.T, c *child) *os.File {
	t.Helper()
	ours, theirs, err := wirePair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	c.wire = wire{ours}
	return theirs
}

// A process that asks, and does not read the answers, is ended. Else nobody could revoke what it
// may reach.
func TestAProcessThatReadsNothingIsEnded(t *testing.T) {
	e, c, _, _ := newSupervisor(t)
	wired(t, c)
	e.patience = time.Millisecond
	var err error
	for err == nil {
		err = e.take(c, report{Ask: "evil.net"})
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// drain reads the orders to a process, and lets go of the listeners that came with them.
func drain(t *testing.T, theirs *os.File) {
	t.Helper()
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	for over := false; !over; {
		control(theirs, func(fd int) {
			_, oobn, _, _, err := unix.Recvmsg(fd, make([]byte, maxMessage), oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
			if over = err != nil; over {
				return
			}
			files, err := filesOf(oob[:oobn])
			if err != nil {
				t.Error(err)
			}
			closeAll(files)
		})
	}
}

// Whatever a process reports, a line each, the supervisor keeps to its rules and its bounds.
func FuzzReports(f *testing.F) {
	testenv.Root(f)
	for _, text := range []string{
		`{"ready":true}` + "\n" + `{"ask":"a.example.org"}` + "\n" + `{"opened":{"id":1,"host":"a.example.org","port":443,"addr":"93.184.216.34"}}` + "\n" + `{"closed":{"id":1,"sent":5,"received":9223372036854775807,"requests":-1}}`,
		`{"opened":{"id":1,"host":"example.com","port":443,"addr":"::ffff:10.0.0.1","rule":"*","error":"x"}}` + "\n" + `{"opened":{"id":1,"host":"example.com","port":443,"addr":""}}`,
		`{"opened":{"id":2,"host":"evil.net","port":443,"addr":"93.184.216.34"}}`,
		`{"opened":{"id":2,"host":"example.com","port":443,"addr":"fe80::1%eth0"}}`,
		`{"ask":"*.example.org"}` + "\n" + `{"ask":"A.Example.Org."}` + "\n" + `{"ask":"evil.net"}` + "\n" + `{"ask":"127.1"}`,
		`{"denied":{"host":"a\u0000b","port":1,"reason":"r","count":-9223372036854775808}}` + "\n" + `{"took":true,"all":true}` + "\n" + `{"obeyed":18446744073709551615}`,
		`{"ready":true,"ask":"b.example.org","opened":{},"closed":{},"denied":{}}` + "\nnull\n[]\n{}\n\"\"\n{\"id\":",
	} {
		f.Add([]byte(text))
	}
	namespace, err := netns.New()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { namespace.Close() })
	f.Fuzz(func(t *testing.T, text []byte) {
		e, c, allowed, denied := newSupervisor(t)
		e.namespace, e.patience, e.ready = namespace, time.Minute, make(chan struct{})
		c.took, c.obeyed = make(chan struct{}, maxTook), map[uint64]chan struct{}{}
		theirs := wired(t, c)
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			if len(line) == 0 || len(line) > 1<<16 {
				continue // an empty message is the end
			}
			if _, err := theirs.Write(line); err != nil {
				t.Fatal(err)
			}
			var r report
			files, err := c.wire.receive(&r)
			closeAll(files)
			if err == nil {
				err = e.take(c, r)
			}
			drain(t, theirs)
			if err != nil {
				break
			}
		}
		for _, a := range *allowed {
			checkAllowed(t, e, a)
		}
		for a := range maps.Values(c.open) {
			checkAllowed(t, e, a)
		}
		for _, d := range *denied {
			if len(d.Host) > maxAsked || len(d.Reason) > maxReason || d.Count < 1 || d.Count > maxCount {
				t.Errorf("it recorded the refusal %+v", d)
			}
		}
		for name, h := range e.hosts {
			if name != "example.com" && !(allowlist.Rule{Host: "example.org", Wildcard: true}).Covers(name) {
				t.Errorf("%q has an address", name)
			}
			e.closeLocked(h, nil)
		}
		if len(e.hosts) > 1+maxNames || len(c.open) > maxOpen || e.taken != 0 {
			t.Errorf("%d hosts, %d connections, %d listeners", len(e.hosts), len(c.open), e.taken)
		}
	})
}

// checkAllowed checks that a connection is to a host with an address inside, by the rule for it.
func checkAllowed(t *testing.T, e *Egress, a Allowed) {
	t.Helper()
	rule, is := e.ruleOf(allowlist.Host(a.Host), a.Port)
	if !is || a.Rule != rule.String() || a.Addr.Zone() != "" || len(a.Error) > maxErrorText ||
		a.Sent < 0 || a.Sent > maxSum || a.Received < 0 || a.Received > maxSum || a.Requests < 0 || a.Requests > maxSum {
		t.Errorf("it recorded the connection %+v", a)
	}
}
