package isolate

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// What a sandbox sees of /proc beside its processes: what programs read to find
// out about the machine they run on, and what says nothing that they could not
// ask the kernel. Every other entry is covered, known or not. It may name the
// host's disks, devices, modules, boot options, keys, locks, or its users' work.
var shownProc = []string{
	"mounts", "net", "self", "thread-self", // links to the process's own
	"sys", "sysvipc", // of the sandbox's namespaces, but for what coveredProc names
	"cpuinfo", "loadavg", "meminfo", "pressure", "stat", "uptime", "vmstat", "zoneinfo", "buddyinfo", "softirqs", "schedstat",
	"cgroups", "config.gz", "consoles", "crypto", "devices", "dma", "execdomains", "filesystems", "misc", "tty", "version", "version_signature",
}

// coveredProc are the entries further down: the settings of device drivers,
// which name drives and ports, and the number of this start of the host.
var coveredProc = []string{"sys/dev", BootID}

// BootID is the path below /proc of the number of the host's start, which names
// the host. Programs read it, so a runtime that can shows another.
const BootID = "sys/kernel/random/boot_id"

// shownSys is what a sandbox that has a /sys sees of it: what the C library,
// allocators and run-times read to find out how many processors and how much
// memory they have.
var shownSys = []string{"devices/system/cpu", "devices/system/node", "devices/system/memory", "fs/cgroup", "kernel/mm"}

// coveredSys are below shownSys: how hot the processors were tells what others do.
var coveredSys = []string{"devices/system/cpu/cpu*/thermal_throttle"}

// A Cover is a path of /proc or /sys that is to be covered inside by an empty
// file or directory.
type Cover struct {
	Path string
	Dir  bool
}

// ProcCovers returns what of /proc is covered on this host. Files that are for
// root alone are left out: nobody inside is. Errors: Unsupported.
func ProcCovers() ([]Cover, error) { return procCovers("/proc") }

func procCovers(proc string) ([]Cover, error) {
	names, err := kernelNames(proc)
	if err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "read /proc: %w", err)
	}
	paths := slices.Clone(coveredProc)
	for _, name := range names {
		if !slices.Contains(shownProc, name) {
			paths = append(paths, name)
		}
	}
	var covers []Cover
	for _, path := range paths {
		path = filepath.Join(proc, path)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && info.Mode()&fs.ModeSymlink != 0: // it leads to what is covered or absent
		case err != nil:
			return nil, errdefs.New(errdefs.Unsupported, "read /proc: %w", err)
		case info.IsDir():
			covers = append(covers, Cover{path, true})
		case info.Mode().Perm()&0o004 != 0:
			covers = append(covers, Cover{path, false})
		}
	}
	return covers, nil
}

// kernelNames lists proc up to the first process: the kernel lists its own
// entries first (fs/proc/root.c), and of processes there may be many.
func kernelNames(proc string) ([]string, error) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var found []string
	for {
		names, err := dir.Readdirnames(64)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if name[0] >= '0' && name[0] <= '9' {
				return found, nil
			}
			found = append(found, name)
		}
	}
}

// SysCovers returns the paths of /sys that are covered on this host, where a
// sandbox has a /sys. Errors: Unsupported.
func SysCovers() ([]string, error) { return sysCovers("/sys") }

func sysCovers(sys string) ([]string, error) {
	var covers []string
	var walk func(dir string) error
	walk = func(dir string) error {
		entries, err := os.ReadDir(filepath.Join(sys, dir))
		if err != nil {
			return errdefs.New(errdefs.Unsupported, "read /sys: %w", err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case slices.Contains(shownSys, path):
			case slices.ContainsFunc(shownSys, func(shown string) bool { return strings.HasPrefix(shown, path+"/") }):
				if err := walk(path); err != nil {
					return err
				}
			case e.Type()&fs.ModeSymlink == 0:
				covers = append(covers, filepath.Join(sys, path))
			}
		}
		return nil
	}
	if err := walk("."); err != nil {
		return nil, err
	}
	for _, pattern := range coveredSys {
		matches, _ := filepath.Glob(filepath.Join(sys, pattern)) // its one error is a bad pattern
		covers = append(covers, matches...)
	}
	return covers, nil
}
