package testenv

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// DockerImage is the image that a DockerDaemon has: busybox, and what our own
// test binaries need to run.
const DockerImage = "agentfense-test:latest"

var probeDocker = sync.OnceValue(func() error {
	for _, name := range []string{"dockerd", "docker", "busybox"} {
		if _, err := exec.LookPath(name); err != nil {
			return err
		}
	}
	return rootOnly()
})

// Docker needs what a DockerDaemon is made of, and root.
func Docker(t testing.TB) {
	t.Helper()
	check(t, "docker", probeDocker())
}

// daemonPatience bounds the start and the end of a daemon.
const daemonPatience = time.Minute

// DockerDaemon starts a docker daemon of the test's own, in its mount
// namespace, and returns its address. It ends with the test. It needs Docker.
func DockerDaemon(t testing.TB) string { return NewDaemon(t).Host }

// Daemon is a docker daemon of a test.
type Daemon struct {
	Host string // its address

	t     testing.TB
	dir   string
	cmd   *exec.Cmd
	ended chan error
}

// NewDaemon is DockerDaemon for a test that kills the daemon.
func NewDaemon(t testing.TB) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "agentfense-docker-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, dir) })
	d := &Daemon{Host: "unix://" + dir + "/socket", t: t, dir: dir}
	t.Cleanup(d.end)
	d.Start()
	image, err := imageArchive()
	if err == nil {
		err = docker(d.Host, image, "import", "-", DockerImage)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Start starts the daemon, with what the one before has left if that was
// killed, and returns when it answers.
func (d *Daemon) Start() {
	d.t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("dockerd", "--host", d.Host, "--data-root", d.dir+"/data", "--exec-root", d.dir+"/exec", "--pidfile", d.dir+"/pid",
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--shutdown-timeout=2")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		// Pdeathsig comes when the starting thread ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		d.t.Fatal(err)
	}
	d.cmd, d.ended = cmd, ended
	for deadline := time.Now().Add(daemonPatience); docker(d.Host, nil, "version") != nil; time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(log.Name())
			d.t.Fatalf("dockerd: %v\n%s", err, text)
		default:
		}
		if time.Now().After(deadline) {
			d.t.Fatal("dockerd does not answer")
		}
	}
}

// Kill kills the daemon, and the containerd that it has started, which have no
// time to put anything in order. What runs in its containers goes on.
func (d *Daemon) Kill() {
	d.t.Helper()
	file := filepath.Join(d.dir, "exec", "containerd", "containerd.pid")
	text, err := os.ReadFile(file)
	pid := 0
	if err == nil {
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	err = errors.Join(err, d.cmd.Process.Kill())
	<-d.ended
	d.cmd = nil
	if err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone with its parent
	}
	// The next daemon would wait for it, should nobody ask how it ended.
	if err = errors.Join(err, os.Remove(file)); err != nil {
		d.t.Error(err)
	}
}

func (d *Daemon) end() {
	d.t.Helper()
	if d.cmd == nil { // killed, and not started again
		d.killShims()
		return
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-d.ended:
	case <-time.After(daemonPatience):
		d.t.Error("dockerd does not end")
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
}

// killShims kills the processes that hold containers of a daemon that is gone:
// those that are called with a name in its directory.
func (d *Daemon) killShims() {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		d.t.Error(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), d.dir+"/") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be on its way out
		}
	}
}

// removeAll removes dir with what is mounted below it.
func removeAll(t testing.TB, dir string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			_ = syscall.Unmount(fields[4], syscall.MNT_DETACH) // one above may have taken it along
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// docker runs the client.
func docker(host string, stdin []byte, args ...string) error {
	cmd := exec.Command("docker", append([]string{"--host", host}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	return run(cmd)
}

// getent answers from the files and the resolver, as the C library's does.
const getent = `#!/bin/sh
case $1 in
hosts) grep -w -- "$2" /etc/hosts || nslookup "$2" ;;
*) grep "^$2:" "/etc/$1" ;;
esac
`

// imageArchive is the root of DockerImage.
func imageArchive() ([]byte, error) {
	var archive bytes.Buffer
	w := imageWriter{tar: tar.NewWriter(&archive)}
	w.dir("bin")
	w.dir("lib64")
	w.link("lib", "lib64")
	w.dir("etc")
	w.dir("usr")
	w.dir("usr/share")
	w.link("usr/bin", "../bin")
	w.file("bin/getent", []byte(getent))
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	w.copy("bin/busybox", busybox)
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	for name := range strings.FieldsSeq(string(applets)) {
		if name != "busybox" {
			w.link("bin/"+name, "busybox")
		}
	}
	w.libraries("/proc/self/exe")
	w.libraries(busybox)
	return archive.Bytes(), errors.Join(w.err, w.tar.Close())
}

// imageWriter writes an archive; after a failure it does nothing.
type imageWriter struct {
	tar  *tar.Writer
	err  error
	seen []string
}

func (w *imageWriter) add(h *tar.Header, content []byte) {
	if w.err != nil {
		return
	}
	h.Size = int64(len(content))
	if w.err = w.tar.WriteHeader(h); w.err == nil {
		_, w.err = w.tar.Write(content)
	}
}

func (w *imageWriter) dir(name string) {
	w.add(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, nil)
}

func (w *imageWriter) link(name, target string) {
	w.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

func (w *imageWriter) file(name string, content []byte) {
	w.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, content)
}

func (w *imageWriter) copy(name, path string) {
	content, err := os.ReadFile(path)
	w.err = errors.Join(w.err, err)
	w.file(name, content)
}

// libraries adds what a dynamic program is linked with, which one built for
// the race detector is: the C library's parts. /lib is the same directory.
func (w *imageWriter) libraries(program string) {
	f, err := elf.Open(program)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil || len(names) == 0 {
		w.err = errors.Join(w.err, err)
		return
	}
	for _, name := range names {
		w.library(name)
	}
	w.library("ld-linux-x86-64.so.2")
}

func (w *imageWriter) library(name string) {
	if slices.Contains(w.seen, name) {
		return
	}
	w.seen = append(w.seen, name)
	for _, dir := range []string{"/lib64", "/lib/x86_64-linux-gnu", "/usr/lib64"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			w.copy("lib64/"+name, path)
			return
		}
	}
	w.err = errors.Join(w.err, fmt.Errorf("library %s: %w", name, fs.ErrNotExist))
}
