package needs

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
func DockerDaemon(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "agentfense-docker-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, dir) })
	host := "unix://" + dir + "/socket"
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("dockerd", "--host", host, "--data-root", dir+"/data", "--exec-root", dir+"/exec", "--pidfile", dir+"/pid",
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
		t.Fatal(err)
	}
	t.Cleanup(func() { endDaemon(t, cmd, ended) })
	for deadline := time.Now().Add(daemonPatience); ; time.Sleep(20 * time.Millisecond) {
		if docker(host, nil, "version") == nil {
			break
		}
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("dockerd: %v\n%s", err, text)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("dockerd does not answer")
		}
	}
	image, err := imageArchive()
	if err == nil {
		err = docker(host, image, "import", "-", DockerImage)
	}
	if err != nil {
		t.Fatal(err)
	}
	return host
}

func endDaemon(t testing.TB, cmd *exec.Cmd, ended <-chan error) {
	t.Helper()
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-ended:
	case <-time.After(daemonPatience):
		t.Error("dockerd does not end")
		_ = cmd.Process.Kill()
		<-ended
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

// getent answers from the files, as the C library's does.
const getent = `#!/bin/sh
case $1 in
hosts) grep -w -- "$2" /etc/hosts ;;
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
