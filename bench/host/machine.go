package host

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// LoadAverage returns 0 if it is unknown.
func LoadAverage() float64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return float64(info.Loads[0]) / (1 << 16) // SI_LOAD_SHIFT, linux/sysinfo.h
}

// KernelRelease is what uname -r says.
func KernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// ErrNotInstalled means that a program is not on the PATH.
var ErrNotInstalled = errors.New("not installed")

// LookPath is exec.LookPath with an absolute, resolved result.
func LookPath(name string) (string, error) {
	p, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, ErrNotInstalled)
	}
	if p, err = filepath.Abs(p); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(p)
}

// FindAgentfense finds the binary to measure: the one given, else
// bin/agentfense, else the one on the PATH.
func FindAgentfense(given string) (string, error) {
	if given != "" {
		return LookPath(given)
	}
	if p, err := LookPath("./bin/agentfense"); err == nil {
		return p, nil
	}
	p, err := LookPath("agentfense")
	if err != nil {
		return "", fmt.Errorf("bin/agentfense: %w: build it first", ErrNotInstalled)
	}
	return p, nil
}
