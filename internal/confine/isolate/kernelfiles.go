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

// shownProc are the entries of /proc, in addition to processes, that a sandbox sees: those
// that programs read to learn about the machine, and those with information that system
// calls also give. Every other entry is covered, because it may name the host's disks,
// devices, modules, boot options, keys, locks, or its users' work.
var shownProc = []string{
	"mounts", "net", "self", "thread-self", // links to the entries of the process
	"sys", "sysvipc", // of the sandbox's namespaces, except coveredProc
	"cpuinfo", "loadavg", "meminfo", "pressure", "stat", "uptime", "vmstat", "zoneinfo", "buddyinfo", "softirqs", "schedstat",
	"cgroups", "config.gz", "consoles", "crypto", "devices", "dma", "execdomains", "filesystems", "misc", "tty", "version", "version_signature",
}

// coveredProc are covered entries below shownProc: the settings of device drivers, which
// name drives and ports, and the boot id of the host.
var coveredProc = []string{"sys/dev", BootID}

// BootID is the path below /proc of the host's boot id, which identifies the host. Programs
// read it, so a runtime shows another id if it can.
const BootID = "sys/kernel/random/boot_id"

// shownSys are the entries of /sys that a sandbox with a /sys sees: those that the C
// library, allocators and language runtimes read to find the number of processors and the
// size of memory.
var shownSys = []string{"devices/system/cpu", "devices/system/node", "devices/system/memory", "fs/cgroup", "kernel/mm"}

// coveredSys are covered entries below shownSys: the thermal state of the processors
// reveals other activity.
var coveredSys = []string{"devices/system/cpu/cpu*/thermal_throttle"}

// Cover is a path of /proc or /sys that an empty file or directory covers inside.
type Cover struct {
	Path string
	Dir  bool
}

// ProcCovers returns the covered paths of /proc on this host. It omits files that only root
// can read, because no process inside is root. Errors: Unsupported.
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
		case errors.Is(err, fs.ErrNotExist), err == nil && info.Mode()&fs.ModeSymlink != 0: // its target is covered or absent
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

// kernelNames lists proc up to the first process. The kernel lists its own entries first
// (fs/proc/root.c), and there may be many processes.
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

// SysCovers returns the covered paths of /sys on this host, for a sandbox with a /sys.
// Errors: Unsupported.
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
		matches, _ := filepath.Glob(filepath.Join(sys, pattern)) // the only error is a bad pattern
		covers = append(covers, matches...)
	}
	return covers, nil
}
