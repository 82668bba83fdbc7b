package fdpass

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func offer(t *testing.T) (*Offer, string) {
	t.Helper()
	dir := t.TempDir()
	o, err := Listen(dir, "socket", os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return o, filepath.Join(dir, "socket")
}

func connect(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestAcceptTakesTheOneItIsFor(t *testing.T) {
	o, path := offer(t)
	connect(t, path)
	p, err := o.Accept(context.Background(), os.Getpid(), os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	defer p.PIDFD.Close()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's name is still there: %v", err)
	}
}

func TestAcceptRefusesOthers(t *testing.T) {
	for name, who := range map[string][2]int{"another process": {os.Getppid(), os.Geteuid()}, "another user": {os.Getpid(), os.Geteuid() + 1}} {
		t.Run(name, func(t *testing.T) {
			o, path := offer(t)
			conn := connect(t, path)
			if _, err := o.Accept(context.Background(), who[0], who[1]); !errdefs.Is(err, errdefs.Denied) {
				t.Fatalf("got %v, want it denied", err)
			}
			if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("it got %d bytes, %v", n, err)
			}
			if _, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: path}); err == nil {
				t.Error("the offer stands for another one")
			}
		})
	}
}

func TestAcceptRefusesOneThatLeft(t *testing.T) {
	o, path := offer(t)
	connect(t, path).Close()
	if _, err := o.Accept(context.Background(), os.Getpid(), os.Geteuid()); !errdefs.Is(err, errdefs.Denied) {
		t.Errorf("got %v, want it denied", err)
	}
}

func TestAcceptGivesUp(t *testing.T) {
	o, _ := offer(t)
	ctx, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	if _, err := o.Accept(ctx, os.Getpid(), os.Geteuid()); !errdefs.Is(err, errdefs.Deadline) {
		t.Errorf("got %v (%v)", err, errdefs.KindOf(err))
	}
}

func TestGiveArrivesWhole(t *testing.T) {
	o, path := offer(t)
	got := make(chan error, 1)
	filter := make([]byte, 2000)
	filter[1999] = 7
	go func() {
		data, fds, err := receive(path)
		if err == nil && (len(data) != 2000 || data[1999] != 7) {
			err = errors.New("the filter is another")
		}
		for _, fd := range fds {
			err = errors.Join(err, unix.Close(fd))
		}
		got <- err
	}()
	p, err := o.Accept(context.Background(), os.Getpid(), os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	defer p.PIDFD.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	if err := p.Give(filter, read, write); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}
