package cgroup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/executable"
)

// kernel has the operations that a plain directory tree cannot imitate. Tests replace it.
type kernel struct {
	mkdir     func(dir string) error
	rmdir     func(dir string) error
	access    func(path string) error // nil if this process may write path
	delegated func(dir string) bool
	kill      func(pid int) error
	own       func(pid int) bool // whether the process runs this program
	uid       int
}

func realKernel() kernel {
	return kernel{
		mkdir:  func(dir string) error { return unix.Mkdir(dir, 0o755) },
		rmdir:  unix.Rmdir,
		access: func(path string) error { return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) },
		delegated: func(dir string) bool {
			return hasMark(dir, "user.delegate") || hasMark(dir, "trusted.delegate")
		},
		kill: func(pid int) error { return unix.Kill(pid, unix.SIGKILL) },
		own:  executable.Runs,
		uid:  os.Geteuid(),
	}
}

// hasMark looks for the mark that systemd sets on a group that it delegates (systemd's
// CGROUP_DELEGATION: user.delegate since 251, trusted.delegate for root).
func hasMark(dir, name string) bool {
	var value [8]byte
	n, err := unix.Getxattr(dir, name, value[:])
	return err == nil && string(value[:n]) == "1"
}

func read(dir, file string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(b)), err
}

// write sets a control file in one write(2), as the kernel requires. The error is an errno.
func write(dir, file, value string) error {
	fd, err := unix.Open(filepath.Join(dir, file), unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		if _, err = unix.Write(fd, []byte(value)); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func exists(dir, file string) bool {
	_, err := os.Lstat(filepath.Join(dir, file))
	return err == nil
}

// number reads a file with one number. It returns 0 if the file is absent or has "max".
func number(dir, file string) int64 {
	text, err := read(dir, file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// field reads the number after key in a file of "key number" lines. It returns 0 if key is
// absent.
func field(dir, file, key string) int64 {
	text, _ := read(dir, file)
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == key {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}

func words(dir, file string) []string {
	text, _ := read(dir, file)
	return strings.Fields(text)
}

// processes lists the processes of one group, not those of groups below it. The kernel
// lists a process of another pid namespace as 0.
func processes(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for word := range bytes.FieldsSeq(b) {
		pid, err := strconv.Atoi(string(word))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// subgroups returns the directories directly below dir.
func subgroups(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(dir, e.Name()))
		}
	}
	return dirs, nil
}
