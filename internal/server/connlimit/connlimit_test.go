package connlimit_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/server/connlimit"
)

// feed is a listener of connections that a test hands it.
type feed struct {
	next chan any // net.Conn or error
	once sync.Once
	done chan struct{}
}

func newFeed() *feed { return &feed{next: make(chan any, 16), done: make(chan struct{})} }

func (f *feed) Accept() (net.Conn, error) {
	select {
	case n := <-f.next:
		if err, is := n.(error); is {
			return nil, err
		}
		return n.(net.Conn), nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

func (f *feed) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

func (f *feed) Addr() net.Addr { return &net.TCPAddr{} }

// remote is one end of a pipe that says it is somebody else's.
type remote struct {
	net.Conn
	addr net.TCPAddr
}

func (r *remote) RemoteAddr() net.Addr { return &r.addr }

// text is a log that timers may write to.
type text struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *text) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// world is a limiter with a listener, and its log.
type world struct {
	t        *testing.T
	limiter  *connlimit.Limiter
	feed     *feed
	listener net.Listener
	log      text
}

func newWorld(t *testing.T, most, perPeer int) *world {
	w := &world{t: t, feed: newFeed()}
	w.limiter = connlimit.New(connlimit.Options{
		Most: most, MostPerPeer: perPeer, FirstCall: 10 * time.Second, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	w.listener = w.limiter.Listen(w.feed)
	return w
}

// connect returns both ends of a connection from an address.
func (w *world) connect(from string) (ours, theirs net.Conn) {
	w.t.Helper()
	a, theirs := net.Pipe()
	w.feed.next <- &remote{a, net.TCPAddr{IP: net.ParseIP(from), Port: 1}}
	ours, err := w.listener.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	return ours, theirs
}

func admit(c net.Conn) error { return c.RemoteAddr().(connlimit.Addr).Admit() }

// isClosed tells whether the server has closed a connection.
func isClosed(theirs net.Conn) bool {
	_ = theirs.SetReadDeadline(time.Now())
	_, err := theirs.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func (w *world) wantCounts(strangers, admitted int) {
	w.t.Helper()
	if c := w.limiter.Counts(); c.Anonymous != strangers || c.Admitted != admitted {
		w.t.Errorf("%+v, want %d strangers and %d admitted", c, strangers, admitted)
	}
}

func TestAStrangerTakesTheOldestsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100, 8) // 2 places for the anonymous connections of a peer
		_, first := w.connect("192.0.2.1")
		_, second := w.connect("192.0.2.1")
		_, other := w.connect("192.0.2.2")
		known, theirs := w.connect("192.0.2.1")
		if !isClosed(first) || isClosed(second) || isClosed(other) {
			t.Error("the peer's oldest makes room, and nobody else")
		}
		if err := admit(known); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			w.connect("192.0.2.1")
		}
		if isClosed(theirs) || isClosed(other) {
			t.Error("who was admitted, and another peer, stay")
		}
		w.wantCounts(3, 1)
		if n := strings.Count(w.log.String(), "too many without credentials"); n != 1 {
			t.Errorf("%d log lines, want one:\n%s", n, w.log.String())
		}
		time.Sleep(time.Minute) // the rest is closed
	})
}

func TestInAllThePeerWithTheMostMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 16, 16) // 4 places for anonymous connections
		_, quiet := w.connect("192.0.2.1")
		var flood []net.Conn
		for range 3 {
			_, theirs := w.connect("192.0.2.2")
			flood = append(flood, theirs)
		}
		w.connect("192.0.2.3")
		if isClosed(quiet) || !isClosed(flood[0]) || isClosed(flood[1]) {
			t.Error("not the oldest of the peer with the most was closed")
		}
		w.wantCounts(4, 0)
		time.Sleep(time.Minute)
	})
}

func TestWhoMakesNoCallIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100, 100)
		known, knownTheirs := w.connect("192.0.2.1")
		asking, askingTheirs := w.connect("192.0.2.1")
		_, silent := w.connect("192.0.2.1")
		if err := admit(known); err != nil {
			t.Fatal(err)
		}
		leave := asking.RemoteAddr().(connlimit.Addr).Stay()
		time.Sleep(11 * time.Second)
		if !isClosed(silent) || isClosed(askingTheirs) || isClosed(knownTheirs) {
			t.Error("only the silent one is closed in time")
		}
		leave()
		time.Sleep(9 * time.Second)
		if isClosed(askingTheirs) {
			t.Error("after a call there is time for another")
		}
		time.Sleep(2 * time.Second)
		if !isClosed(askingTheirs) {
			t.Error("no other call came")
		}
		time.Sleep(time.Hour)
		if isClosed(knownTheirs) {
			t.Error("who was admitted stays")
		}
		if c := w.limiter.Counts(); c.Silent != 2 || c.Admitted != 1 || c.Anonymous != 0 {
			t.Errorf("%+v", c)
		}
		known.Close()
		known.Close()
		w.wantCounts(0, 0)
	})
}

func TestThoseAdmittedAreBoundedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 12, 8) // 9 in all and 6 of a peer
		enter := func(from string) (net.Conn, error) {
			c, _ := w.connect(from)
			return c, admit(c)
		}
		var first net.Conn
		for i := range 6 {
			c, err := enter("192.0.2.1")
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			first = c
		}
		refused, err := enter("192.0.2.1")
		if !errdefs.Is(err, errdefs.Exhausted) || !strings.Contains(err.Error(), "192.0.2.1 already has 6 connections") {
			t.Errorf("one more of a peer: %v", err)
		}
		for range 3 {
			if _, err := enter("192.0.2.2"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := enter("192.0.2.2"); !errdefs.Is(err, errdefs.Exhausted) || !strings.Contains(err.Error(), "the server already has 9 connections") {
			t.Errorf("one more in all: %v", err)
		}
		first.Close()
		if err := admit(refused); err != nil {
			t.Errorf("where one has left: %v", err)
		}
		time.Sleep(time.Minute)
		w.wantCounts(0, 9)
	})
}

func TestAcceptGoesOnAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100, 100)
		for _, err := range []error{unix.EMFILE, unix.ENFILE, unix.ECONNABORTED, unix.ENOMEM, unix.EPROTO, unix.EPERM} {
			w.feed.next <- err
		}
		ours, _ := w.connect("192.0.2.1")
		ours.Close()
		if n := strings.Count(w.log.String(), "none could be accepted"); n != 1 {
			t.Errorf("%d log lines, want one:\n%s", n, w.log.String())
		}
		w.feed.next <- unix.EMFILE
		time.AfterFunc(time.Millisecond, func() { w.listener.Close() }) // in the pause
		if _, err := w.listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed listener: %v", err)
		}
	})
}

// Two users of this host are two peers, though their address is one.
func TestPeersOfThisHostAreUsers(t *testing.T) {
	for _, network := range []string{"tcp4", "tcp6", "unix"} {
		t.Run(network, func(t *testing.T) {
			inner := listen(t, network)
			var log text
			l := connlimit.New(connlimit.Options{Most: 4, MostPerPeer: 4, FirstCall: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})
			listener := l.Listen(inner)
			defer listener.Close()
			for range 2 { // one place for anonymous connections
				theirs, err := net.Dial(inner.Addr().Network(), inner.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer theirs.Close()
				ours, err := listener.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer ours.Close()
			}
			if want := `peer="user ` + strconv.Itoa(os.Getuid()) + `"`; !strings.Contains(log.String(), want) {
				t.Errorf("the log does not name %s:\n%s", want, log.String())
			}
		})
	}
}

func listen(t *testing.T, network string) net.Listener {
	t.Helper()
	addr := map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "unix": t.TempDir() + "/s"}[network]
	l, err := net.Listen(network, addr)
	if network == "tcp6" && errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Skip("this host has no IPv6 loopback")
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Under all at once the books stay right.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, 40, 20)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 200 {
				a, theirs := net.Pipe()
				w.feed.next <- &remote{a, net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(i%3)), Port: 1}}
				theirs.Close()
			}
		})
	}
	var served sync.WaitGroup
	for range 8 * 200 {
		c, err := w.listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		served.Go(func() {
			at := c.RemoteAddr().(connlimit.Addr)
			leave := at.Stay()
			_ = admit(c)
			leave()
			c.Close()
		})
	}
	all.Wait()
	served.Wait()
	w.wantCounts(0, 0)
}
