package attack_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

const (
	abstractName = "@agentfense-attack-51"
	shmKey       = 0x41464531
)

var reachOut = program("reach out", func(in *inside, _ []string) {
	dial := func(network, name string) error {
		c, err := net.Dial(network, name)
		if err == nil {
			c.Close()
		}
		return err
	}
	in.errno("connect to an abstract socket", dial("unix", abstractName), unix.ECONNREFUSED)
	in.errno("connect to an abstract datagram socket", dial("unixgram", abstractName+"-datagram"), unix.ECONNREFUSED)
	in.errno("connect to a socket in the source", dial("unix", "socket"), unix.ECONNREFUSED)
	for _, path := range []string{"/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/tmp/.X11-unix/X0", "/run/user/0/bus"} {
		in.errno("connect to "+path, dial("unix", path), unix.ENOENT)
	}
	_, err := unix.SysvShmGet(shmKey, 4096, 0)
	in.errno("find the host's shared memory", err, unix.ENOENT)
	in.errno("join a keyring", syscallError(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0), unix.EPERM)
	in.errno("add a key", syscallError(unix.SYS_ADD_KEY), unix.EPERM)
	in.errno("ask for a key", syscallError(unix.SYS_REQUEST_KEY), unix.EPERM)
	_, err = os.Stat("/dev/shm/agentfense-attack-51")
	in.errno("see a file of the host's /dev/shm", err, unix.ENOENT)
})

// No way of the host's processes to talk to each other leads inside.
func TestHostSocketsAndMemoryAreOutOfReach(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		listenUnix(t, abstractName)
		listenUnix(t, filepath.Join(s.Source, "socket"))
		if err := os.Chmod(filepath.Join(s.Source, "socket"), 0o666); err != nil {
			t.Fatal(err)
		}
		datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: abstractName + "-datagram", Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { datagrams.Close() })
		id, err := unix.SysvShmGet(shmKey, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
				t.Error(err)
			}
		})
		const shared = "/dev/shm/agentfense-attack-51"
		if err := os.WriteFile(shared, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(shared) })
		passes(t, s, reachOut, nil, "--preset", "full-access")
		prints(t, s, `ls -A /run /var/tmp /dev/shm; tail -n +2 /proc/net/unix | wc -l; tail -n +2 /proc/sysvipc/shm`,
			"/dev/shm:\n\n/run:\n\n/var/tmp:\n0\n")
	})
}

func listenUnix(t *testing.T, name string) {
	t.Helper()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}
