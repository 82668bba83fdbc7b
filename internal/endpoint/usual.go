//go:build linux

package endpoint

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
)

// trusted is FindUsual at a port, and which sockets listen there.
func trusted(port string) (address, who string, err error) {
	all, err := listeners(port)
	for i := 0; i < len(all) && err == nil; i++ {
		err = all[i].trusted(port)
		who += all[i].inode + " "
	}
	if err != nil {
		const advice = "only if you trust a listener there, name it by its address, 127.0.0.1:%[1]s or [::1]:%[1]s, for the name may lead to another: set AGENTFENSE_ENDPOINT"
		return "", "", fault.New(fault.Denied, "localhost:%[1]s: not asked, for %[2]w: "+advice, port, err)
	}
	if len(all) == 0 {
		return "", "", nil
	}
	host := "127.0.0.1"
	if !slices.ContainsFunc(all, listener.takesIPv4) {
		host = "::1"
	}
	return net.JoinHostPort(host, port), who, nil
}

// listener is a socket, as proc_pid_net(5) shows it.
type listener struct {
	addr  netip.Addr
	uid   int
	inode string
}

// takesIPv4 reports whether it is certain that it does. One at [::] may leave
// 127.0.0.1 to anybody.
func (l listener) takesIPv4() bool { return l.addr.Is4() }

// listeners are those that may be reached at localhost and a port.
func listeners(port string) (all []listener, err error) {
	for _, name := range []string{"tcp", "tcp6"} {
		table, err := os.Open("/proc/self/net/" + name)
		if name == "tcp6" && errors.Is(err, fs.ErrNotExist) { // a kernel without it
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		defer table.Close()
		lines := bufio.NewScanner(table)
		for lines.Scan(); lines.Scan(); { // the first line is the heading
			l, reached, err := parseListener(lines.Text(), port)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", table.Name(), err)
			}
			if reached {
				all = append(all, l)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// parseListener reads a line of the table.
func parseListener(line, port string) (l listener, reached bool, err error) {
	const listen, columns = "0A", 10
	f := strings.Fields(line)
	if len(f) < columns {
		return l, false, fmt.Errorf("%q: too short", line)
	}
	host, at, _ := strings.Cut(f[1], ":")
	number, err := strconv.ParseUint(at, 16, 16)
	if err != nil {
		return l, false, err
	}
	if f[3] != listen || strconv.FormatUint(number, 10) != port {
		return l, false, nil
	}
	if l.addr, err = parseHex(host); err != nil {
		return l, false, err
	}
	l.inode = f[9]
	l.uid, err = strconv.Atoi(f[7])
	return l, l.addr.IsUnspecified() || l.addr == netip.IPv6Loopback() || l.addr == netip.AddrFrom4([4]byte{127, 0, 0, 1}), err
}

// parseHex reads an address, of which each four bytes are a number of the machine.
func parseHex(text string) (netip.Addr, error) {
	b, err := hex.DecodeString(text)
	if err != nil {
		return netip.Addr{}, err
	}
	for word := b; len(word) >= 4; word = word[4:] {
		binary.BigEndian.PutUint32(word, binary.NativeEndian.Uint32(word))
	}
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		return addr, fmt.Errorf("%q: no address", text)
	}
	return addr.Unmap(), nil
}

// trusted says why a listener at a port is not, nil if it is.
func (l listener) trusted(port string) error {
	var err error
	switch l.uid {
	case os.Geteuid():
		err = l.seesOurRoot()
	case 0:
	default:
		err = fmt.Errorf("user %d listens there", l.uid)
	}
	if err != nil {
		return fmt.Errorf("%s is in doubt: %w", net.JoinHostPort(l.addr.String(), port), err)
	}
	return nil
}

// seesOurRoot makes sure that a socket of our own user is that of processes
// whose root is ours.
func (l listener) seesOurRoot() error {
	ours, err := os.Stat("/proc/self/root")
	if err != nil {
		return err
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd")
	if err != nil {
		return err
	}
	found := false
	for _, dir := range fds {
		if !has(dir, "socket:["+l.inode+"]") {
			continue
		}
		process := filepath.Dir(dir)
		root, err := os.Stat(process + "/root")
		if err != nil || !os.SameFile(ours, root) {
			return fmt.Errorf("process %s, which listens there, has another root, as in a sandbox or a container", filepath.Base(process))
		}
		found = true
	}
	if !found {
		return errors.New("it cannot be told which process listens there")
	}
	return nil
}

// has reports whether a directory of descriptors, if it can be read, has one of
// a file.
func has(dir, file string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	return err == nil && slices.ContainsFunc(names, func(name string) bool {
		target := make([]byte, len(file)+1)
		n, err := unix.Readlinkat(int(d.Fd()), name, target)
		return err == nil && string(target[:n]) == file
	})
}
