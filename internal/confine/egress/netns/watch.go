package netns

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// checkLinks refuses the calling thread's namespace if it has more interfaces than lo. Those that
// modules of the kernel put into every namespace (tunl0) are down, and nobody inside sets them up.
func checkLinks() error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Index != loopback && l.Flags&net.FlagUp != 0 {
			return errors.New("the sandbox has another network: the interface " + l.Name)
		}
	}
	return nil
}

// watch is told by the kernel of the interfaces of a namespace (rtnetlink(7)).
type watch struct{ file *os.File }

// newWatch watches the calling thread's namespace.
func newWatch() (*watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &watch{os.NewFile(uintptr(fd), "links")}, nil
}

// start calls changed in a goroutine, once, when another interface than lo is up, or when that is
// not known.
func (w *watch) start(changed func(name string)) {
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := w.file.Read(buffer)
			if errors.Is(err, os.ErrClosed) {
				return
			}
			name, other := "unknown", true // of a message that was lost, too
			if err == nil {
				name, other = otherLink(buffer[:n])
			}
			if other {
				changed(name)
				return
			}
		}
	}()
}

func (w *watch) close() { w.file.Close() }

// otherLink returns the name of another interface than lo that is up, according to messages.
func otherLink(text []byte) (name string, found bool) {
	messages, err := syscall.ParseNetlinkMessage(text)
	if err != nil {
		return "unknown", true
	}
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		index, flags := binary.NativeEndian.Uint32(m.Data[4:]), binary.NativeEndian.Uint32(m.Data[8:])
		if index != loopback && flags&unix.IFF_UP != 0 {
			return linkName(m), true
		}
	}
	return "", false
}

func linkName(m syscall.NetlinkMessage) string {
	attributes, _ := syscall.ParseNetlinkRouteAttr(&m) // without a name it is unknown
	for _, a := range attributes {
		if a.Attr.Type == unix.IFLA_IFNAME {
			return strings.TrimRight(string(a.Value), "\x00")
		}
	}
	return "unknown"
}
