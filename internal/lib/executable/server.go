// Package executable knows the two programs of agentfense.
//
// The program agentfense is light: command line, supervisor and guest. It runs
// for each sandbox, so it must not link the server's libraries, which cost every
// process 4 MB and some milliseconds. The program agentfense-server has the server
// and the verbs that talk to one. The light program becomes it by exec when a
// command needs it, with the same arguments, environment and streams.
//
// The light program looks for the other one only beside itself and in
// ../libexec/agentfense, starts a file only if no further user may write it, and
// hands on a descriptor of itself and its build. The server refuses another
// build, and starts sandboxes from that descriptor: an upgrade on disk does not
// mix versions.
package executable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// serverName is the file name of the server's program.
const serverName = "agentfense-server"

// The environment variables with which the light program passes its descriptor and its build to the
// server.
const (
	fdVariable    = "AGENTFENSE_PROGRAM_FD"
	buildVariable = "AGENTFENSE_PROGRAM_BUILD"
)

// lightFD is above all other descriptors that a started process inherits.
const lightFD = 100

// ExecServer replaces this process by agentfense-server, with the same arguments.
// It returns only on an error. Errors: Unsupported.
func ExecServer() error {
	return errdefs.New(errdefs.Unsupported, "start the server's program: %w", execServer())
}

func execServer() error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	path, err := ownPath()
	if err != nil {
		return err
	}
	server, err := openServer(self, serverPaths(path))
	if err != nil {
		return err
	}
	defer server.Close()
	fd, err := unix.FcntlInt(self.Fd(), unix.F_DUPFD, lightFD)
	if err != nil {
		return err
	}
	// Replaced, not appended: of two values Go uses the first.
	if err := errors.Join(os.Setenv(fdVariable, strconv.Itoa(fd)), os.Setenv(buildVariable, Build())); err != nil {
		return err
	}
	err = unix.Exec("/proc/self/fd/"+strconv.Itoa(int(server.Fd())), os.Args, os.Environ())
	return fmt.Errorf("%s: %w", server.Name(), err)
}

// ownPath returns the path of the running program, without symbolic links.
func ownPath() (string, error) {
	path, err := os.Readlink("/proc/self/exe")
	return withoutDeleted(path), err
}

// withoutDeleted removes the suffix that the kernel adds to the path of a removed file.
func withoutDeleted(path string) string { return strings.TrimSuffix(path, " (deleted)") }

// serverPaths lists where the server's program may be, for a light one at path.
func serverPaths(path string) []string {
	dir := filepath.Dir(path)
	return []string{
		filepath.Join(dir, serverName),
		filepath.Join(filepath.Dir(dir), "libexec", "agentfense", serverName),
	}
}

// openServer opens the first of paths that exists. It refuses a file that users may write who may
// not write self.
func openServer(self *os.File, paths []string) (*os.File, error) {
	for _, path := range paths {
		// O_PATH: opening a pipe or a device has no effect.
		fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		server := os.NewFile(uintptr(fd), path)
		if err := checkFile(fd, int(self.Fd())); err != nil {
			server.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return server, nil
	}
	return nil, fmt.Errorf("%s is not installed: looked for %s; install both programs with `make install`"+
		" or `go install github.com/agentfense/agentfense/cmd/...@latest`", serverName, strings.Join(paths, " and "))
}

// checkFile refuses the file server if it is not a regular file, or if it may be written by others
// than root, this user, and the owner and group that may write the running program, self.
func checkFile(server, self int) error {
	var st, own unix.Stat_t
	if err := errors.Join(unix.Fstat(server, &st), unix.Fstat(self, &own)); err != nil {
		return err
	}
	groupMayWrite := own.Mode&unix.S_IWGRP != 0 && own.Gid == st.Gid
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("is not a regular file; install it again")
	case st.Uid != 0 && st.Uid != uint32(os.Geteuid()) && st.Uid != own.Uid:
		return fmt.Errorf("belongs to user %d, not to root, to you or to the owner of agentfense; install it again", st.Uid)
	case st.Mode&unix.S_IWOTH != 0, st.Mode&unix.S_IWGRP != 0 && !groupMayWrite:
		return fmt.Errorf("may be written by other users (mode %04o); check who changed it, then install it again", st.Mode&0o7777)
	}
	return nil
}

// Light returns the path by which agentfense-server starts the light program that
// started it, and keeps the descriptor behind it from other programs. Errors:
// Unsupported if no light program started this one, or one of another build.
func Light() (string, error) {
	fd, err := strconv.Atoi(os.Getenv(fdVariable))
	build := os.Getenv(buildVariable)
	if err != nil || fd < lightFD {
		return "", errdefs.New(errdefs.Unsupported, "%s is a part of agentfense: run agentfense instead", serverName)
	}
	unix.CloseOnExec(fd)
	if build != Build() {
		return "", errdefs.New(errdefs.Unsupported, "agentfense is of build %q and %s of build %q: install both from one release", build, serverName, Build())
	}
	if err := errors.Join(os.Unsetenv(fdVariable), os.Unsetenv(buildVariable)); err != nil {
		return "", errdefs.New(errdefs.Internal, "environment: %w", err)
	}
	lightPath = fmt.Sprintf("/proc/self/fd/%d", fd)
	return lightPath, nil
}

// lightPath is what Light returned; empty in the light program itself.
var lightPath string

// Runs reports whether the process pid runs one of the two programs. The light
// program knows the server's by its path, which stays after an upgrade.
func Runs(pid int) bool {
	exe := "/proc/" + strconv.Itoa(pid) + "/exe"
	if sameFile("/proc/self/exe", exe) || lightPath != "" && sameFile(lightPath, exe) {
		return true
	}
	own, err := ownPath()
	if err != nil {
		return false
	}
	target, err := os.Readlink(exe)
	return err == nil && slices.Contains(serverPaths(own), withoutDeleted(target))
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}
