package guest

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is searched if the environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// lookUp returns the path of the command called name as execvp(3) finds it: a
// name with a slash is a path, any other is searched in PATH, where an empty
// element means the current directory.
//
// Errors: ENOENT, if there is no such command; EACCES, if it exists but cannot be executed;
// for a path those of the kernel.
func lookUp(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	path := defaultPath
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			path = value
			break // getenv(3) uses the first
		}
	}
	refused := error(unix.ENOENT)
	for dir := range strings.SplitSeq(path, ":") {
		candidate := dir + "/" + name
		if dir == "" {
			candidate = "./" + name
		}
		err := executable(candidate)
		if err == nil {
			return candidate, nil
		}
		if errors.Is(err, unix.EACCES) {
			refused = err
		}
	}
	return "", refused
}

// executable returns nil if path is a regular file that this process may execute.
func executable(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EACCES
	}
	return unix.Access(path, unix.X_OK)
}
