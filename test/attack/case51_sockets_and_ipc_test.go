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

// sendTo sends a datagram by a socket that was not connected.
func sendTo(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: name})
}

var reachOut = program("reach out", func(in *inside, args []string) {
	dial := func(network, name string) error {
		c, err := net.Dial(network, name)
		if err == nil {
			c.Close()
		}
		return err
	}
	in.errno("connect to an abstract socket", dial("unix", abstractName), unix.ECONNREFUSED)
	in.errno("connect to an abstract datagram socket", dial("unixgram", abstractName+"-datagram"), unix.ECONNREFUSED)
	in.errno("send to an abstract socket without connecting", sendTo(abstractName+"-datagram"), unix.ECONNREFUSED)
	in.errno("send to a socket in the source without connecting", sendTo("datagrams"), unix.ECONNREFUSED)
	for _, port := range args {
		in.errno("connect to the host's "+port, dial("tcp", "127.0.0.1:"+port), unix.ECONNREFUSED)
		in.refused("connect to the host's "+port, dial("tcp", "[::1]:"+port), unix.ECONNREFUSED, unix.EADDRNOTAVAIL, unix.ENETUNREACH)
	}
	in.errno("connect to another machine", dial("tcp", "192.0.2.1:80"), unix.ENETUNREACH)
	in.errno("connect to a socket in the source", dial("unix", "socket"), unix.ECONNREFUSED)
	for _, path := range []string{"/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/tmp/.X11-unix/X0", "/run/user/0/bus"} {
		in.errno("connect to "+path, dial("unix", path), unix.ENOENT)
	}
	for call, number := range map[string]uintptr{"queue": unix.SYS_MSGGET, "semaphore": unix.SYS_SEMGET} {
		in.errno("find the host's "+call, syscallError(number, shmKey, 1, 0), unix.ENOENT)
	}
	_, err := unix.SysvShmGet(shmKey, 4096, 0)
	in.errno("find the host's shared memory", err, unix.ENOENT)
	in.errno("join a keyring", syscallError(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0), unix.EPERM)
	in.errno("add a key", syscallError(unix.SYS_ADD_KEY), unix.EPERM)
	in.errno("ask for a key", syscallError(unix.SYS_REQUEST_KEY), unix.EPERM)
	_, err = os.Stat("/dev/shm/agentfense-attack-51")
	in.errno("see a file of the host's /dev/shm", err, unix.ENOENT)
})

// No means of communication of the host's processes works inside.
func TestHostSocketsAndMemoryAreOutOfReach(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		listenUnix(t, abstractName)
		listenUnix(t, filepath.Join(s.Source, "socket"))
		if err := os.Chmod(filepath.Join(s.Source, "socket"), 0o666); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{abstractName + "-datagram", filepath.Join(s.Source, "datagrams")} {
			datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { datagrams.Close() })
		}
		if err := os.Chmod(filepath.Join(s.Source, "datagrams"), 0o666); err != nil {
			t.Fatal(err)
		}
		services, err := net.Listen("tcp", "localhost:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { services.Close() })
		_, port, err := net.SplitHostPort(services.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
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
		passes(t, s, reachOut, []string{port}, "--preset", "full-access")
		prints(t, s, `ls -A /run /var/tmp /dev/shm; tail -n +2 /proc/net/unix | wc -l; tail -n +2 /proc/sysvipc/shm`,
			"/dev/shm:\n\n/run:\nagentfense\n\n/var/tmp:\n0\n")
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

// --mount of a socket, or of a directory with the host's sockets, is refused.
func TestSocketsCannotBeMounted(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		socket := filepath.Join(s.Source, "agent.sock")
		listenUnix(t, socket)
		for _, path := range []string{socket, "/run", "/var/run", "/tmp", "/run/user", "/dev"} {
			if _, err := os.Stat(path); err == nil {
				refusedToStart(t, s, []string{"--mount", path}, "--mount")
			}
		}
	})
}
