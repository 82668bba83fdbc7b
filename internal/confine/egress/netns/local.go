package netns

import (
	"errors"
	"io/fs"
	"os"
)

// confineLocal sets in the calling thread's namespace what a new namespace has, and one that a
// runtime has made may not have: programs need a capability to listen at the ports of the resolver
// and of hosts, and for sockets of ICMP, and lo has IPv6. The files are of the namespace of the
// thread that opens them (proc_sys_net(5)).
func confineLocal() error {
	for _, s := range []struct{ file, value string }{
		{"ipv4/ip_unprivileged_port_start", "1024"},
		{"ipv4/ping_group_range", "1 0"},
		{"ipv6/conf/lo/disable_ipv6", "0"},
	} {
		if err := setKernel("/proc/sys/net/"+s.file, s.value); err != nil {
			return err
		}
	}
	return nil
}

// setKernel writes a value. A host without IPv6 has no file for that.
func setKernel(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
