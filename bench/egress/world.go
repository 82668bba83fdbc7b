package egress

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Verb runs the benchmark in namespaces of its own.
const Verb = "__egress"

// Where the server is, for the host that the sandbox is on, and its name.
const (
	serverAddr = "93.184.216.34"
	serverName = "bench.example.com"
	tlsPort    = "443"
	plainPort  = "5000"
)

// enter executes this program again in a network and a mount namespace of its own.
func enter(args []string) error {
	if os.Geteuid() != 0 {
		return errors.New("egress: only root can make the network that is measured")
	}
	cmd := exec.Command("/proc/self/exe", append([]string{Verb}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	runtime.LockOSThread() // Pdeathsig comes when the starting thread ends
	return cmd.Run()
}

// listen makes a network with a server's host behind one link, and returns listeners there.
func listen(dir string) (secure, plain, packages net.Listener, err error) {
	made := make(chan int)
	linked := make(chan error)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- 0
			done <- err
			return
		}
		made <- unix.Gettid()
		if err := <-linked; err != nil {
			done <- err
			return
		}
		err := ip("link set lo up", "addr add 11.0.0.2/24 dev internet", "link set internet up", "addr add "+serverAddr+"/32 dev lo")
		if err == nil {
			secure, err = net.Listen("tcp", net.JoinHostPort(serverAddr, tlsPort))
		}
		if err == nil {
			plain, err = net.Listen("tcp", net.JoinHostPort(serverAddr, plainPort))
		}
		if err == nil {
			packages, err = net.Listen("tcp", net.JoinHostPort(serverAddr, registryPort))
		}
		done <- err
	}()
	if tid := <-made; tid != 0 {
		linked <- ip("link set lo up", "link add host type veth peer name internet", fmt.Sprintf("link set internet netns %d", tid),
			"addr add 11.0.0.1/24 dev host", "link set host up", "route add default via 11.0.0.2")
	}
	if err := <-done; err != nil {
		return nil, nil, nil, err
	}
	hosts := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+serverAddr+" "+serverName+"\n"), 0o644); err != nil {
		return nil, nil, nil, err
	}
	return secure, plain, packages, unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, "")
}

// ip runs ip(8).
func ip(commands ...string) error {
	for _, c := range commands {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", c, err, out)
		}
	}
	return nil
}
