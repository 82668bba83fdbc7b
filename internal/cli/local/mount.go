package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// mounts reads --mount SRC[:DST]. Errors: NotFound for a path that is not
// there; Invalid for what must never be shown inside: the state directory,
// sockets, and places the sandbox makes itself.
func (b *Backend) mounts(given []string) ([]record.Mount, error) {
	var mounts []record.Mount
	for _, m := range given {
		source, target, hasTarget := strings.Cut(m, ":")
		switch option := target[strings.LastIndexByte(target, ':')+1:]; {
		case option == "rw":
			return nil, errdefs.New(errdefs.Invalid, "--mount %q: \"rw\": every mount is read-only; what a sandbox may write is its source directory (--dir)", m)
		case option == "ro":
			return nil, errdefs.New(errdefs.Invalid, "--mount %q: \"ro\": every mount is read-only; leave the option out", m)
		case source == "" || hasTarget && !filepath.IsAbs(target) || strings.Contains(target, ":"):
			return nil, errdefs.New(errdefs.Invalid, "--mount %q: want SRC or SRC:DST with an absolute DST, which has no colon", m)
		}
		real, err := realPath(source)
		if err != nil {
			return nil, errdefs.New(errdefs.NotFound, "--mount %q: %w", m, err)
		}
		if !hasTarget {
			if target, err = filepath.Abs(source); err != nil {
				return nil, errdefs.New(errdefs.Invalid, "--mount %q: %w", m, err)
			}
		}
		if err := checkMount(b.home, real, filepath.Clean(target)); err != nil {
			return nil, errdefs.New(errdefs.Invalid, "--mount %q: %w", m, err)
		}
		mounts = append(mounts, record.Mount{Source: record.HostPath(real), Target: record.HostPath(filepath.Clean(target))})
	}
	return mounts, nil
}

func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// ownPlaces are what a sandbox makes itself; a mount there would undo it.
var ownPlaces = []string{"/proc", "/sys", "/dev", "/run/agentfense"}

func checkMount(home *record.Home, source, target string) error {
	info, err := os.Stat(source)
	switch {
	case err != nil:
		return err
	case !info.IsDir() && !info.Mode().IsRegular():
		return errdefs.New(errdefs.Invalid, "neither a directory nor a file")
	case safefs.IsBelow(source, home.Dir()) || safefs.IsBelow(home.Dir(), source):
		return errdefs.New(errdefs.Invalid, "it would show agentfense's own state directory")
	case target == "/" || slices.ContainsFunc(ownPlaces, func(p string) bool { return safefs.IsBelow(target, p) }):
		return errdefs.New(errdefs.Invalid, "%s is reserved for the sandbox", target)
	case slices.ContainsFunc([]string{"/proc", "/sys", "/dev", "/run"}, func(p string) bool { return safefs.IsBelow(source, p) }):
		return errdefs.New(errdefs.Invalid, "%s holds the host's kernel interfaces and sockets", source)
	}
	return nil
}
