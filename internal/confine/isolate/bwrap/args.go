package bwrap

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// initPath is how bubblewrap is told to run PID 1: by descriptor, so that the
// binary has no name inside and its host path stands in no mount table.
const initPath = "/proc/self/fd/8"

// arguments returns bubblewrap's options in the form of --args: each followed
// by a NUL. Later operations see what earlier ones made.
func (p *plan) arguments(*stage) ([]byte, error) {
	var a arguments
	p.isolation(&a)
	if err := p.system(&a); err != nil {
		return nil, err
	}
	p.private(&a)
	p.devices(&a)
	p.shown(&a)
	a.add("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/")
	return a.encode()
}

// arguments collects options.
type arguments struct{ list []string }

func (a *arguments) add(args ...string) { a.list = append(a.list, args...) }

func (a *arguments) encode() ([]byte, error) {
	for _, arg := range a.list {
		if strings.Contains(arg, "\x00") {
			return nil, errdefs.New(errdefs.Invalid, "path %q: holds a NUL", arg)
		}
	}
	return []byte(strings.Join(a.list, "\x00") + "\x00"), nil
}

// isolation asks for everything that is not a mount.
func (p *plan) isolation(a *arguments) {
	a.add("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup")
	if p.spec.Net != isolate.NetHost {
		a.add("--unshare-net")
	}
	a.add("--disable-userns", "--cap-drop", "ALL",
		"--uid", itoa(p.spec.UID), "--gid", itoa(p.spec.GID),
		"--hostname", p.spec.Hostname,
		"--as-pid-1", "--new-session", "--die-with-parent",
		"--seccomp", itoa(seccompFD), "--block-fd", itoa(blockFD), "--info-fd", itoa(infoFD),
		"--clearenv")
	for _, e := range p.spec.InitEnv {
		key, value, _ := strings.Cut(e, "=")
		a.add("--setenv", key, value)
	}
}

// system shows the host's programs, read-only.
func (p *plan) system(a *arguments) error {
	points := p.missingPoints()
	if err := p.tree(a, "/usr", points); err != nil {
		return err
	}
	for _, dir := range systemDirs[1:] {
		st, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		if st.IsDir() {
			if err := p.tree(a, dir, points); err != nil {
				return err
			}
		} else if target, err := os.Readlink(dir); err == nil {
			a.add("--symlink", target, dir)
		}
	}
	a.add("--ro-bind", stageEtc, "/etc")
	if isRealDir(localDir) {
		for _, service := range isolate.Services(localDir) {
			a.add("--ro-bind", stageEmptyFile, service)
		}
	}
	for _, dir := range slices.Concat(systemDirs, p.etcDirs) {
		if isRealDir(dir) {
			cover(a, p.masks(dir, dir))
		}
	}
	return nil
}

// missingPoints returns the mount points that the host does not have, and that
// so cannot be made in a read-only tree.
func (p *plan) missingPoints() []string {
	points := []string{p.spec.Workspace}
	for _, m := range p.mounts {
		points = append(points, m.Target)
	}
	return slices.DeleteFunc(points, func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	})
}

// tree shows dir read-only. If one of points lies below, dir is built anew from
// its entries, so that the point can be made among them.
func (p *plan) tree(a *arguments, dir string, points []string) error {
	if !slices.ContainsFunc(points, func(point string) bool { return safefs.IsBelow(point, dir) }) {
		a.add("--ro-bind", dir, dir)
		return nil
	}
	a.add("--dir", dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return errdefs.New(errdefs.Precondition, "read %s: %w", dir, cause(err))
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			err = p.tree(a, path, points)
		case e.Type() == os.ModeSymlink:
			var target string
			if target, err = os.Readlink(path); err == nil {
				a.add("--symlink", target, path)
			}
		case e.Type().IsRegular():
			a.add("--ro-bind", path, path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// private makes the directories that are the sandbox's own and start empty.
func (p *plan) private(a *arguments) {
	a.add("--perms", "1777", "--tmpfs", "/tmp",
		"--perms", "0755", "--tmpfs", "/run",
		"--perms", "1777", "--tmpfs", "/var/tmp",
		"--symlink", "../run", "/var/run",
		"--proc", "/proc")
	for _, c := range p.covers {
		a.add("--ro-bind", stageCover(c), c.Path)
	}
	if p.spec.HomeDir != "" {
		a.add("--bind", stageHome, p.spec.Home)
		return
	}
	if !isolate.IsBelowAny(p.spec.Home, slices.Concat(systemDirs, kernelDirs, []string{"/etc"})) && p.spec.Home != "/" {
		a.add("--perms", "0755", "--tmpfs", p.spec.Home)
	}
}

// devices makes /dev: the harmless devices, shared memory, terminals.
func (p *plan) devices(a *arguments) {
	a.add("--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm")
	if p.spec.DevPTS != "" {
		a.add("--dev-bind", stagePTS, "/dev/pts")
	}
}

// shown shows what was asked for: mounts from the outermost in, the view last.
func (p *plan) shown(a *arguments) {
	for i, m := range p.mounts {
		a.add("--ro-bind", stageMount(i), m.Target)
		cover(a, p.masks(m.Source, m.Target))
	}
	a.add("--bind", stageView, p.spec.Workspace)
	if p.hasAlias() {
		a.add("--bind", stageView, isolate.Workspace) // no link: find and others do not follow one
	}
}

// hasAlias reports whether isolate.Workspace shows the view too, which lies
// elsewhere: not where something else is in its place.
func (p *plan) hasAlias() bool {
	taken := func(path string) bool { return safefs.IsBelow(path, isolate.Workspace) }
	return !taken(p.spec.Workspace) && !taken(p.spec.Home) && !slices.ContainsFunc(p.mounts, func(m mount) bool { return taken(m.Target) })
}

// cover puts an empty, read-only directory over each of paths.
func cover(a *arguments, paths []string) {
	for _, path := range paths {
		a.add("--perms", "0555", "--tmpfs", path, "--remount-ro", path)
	}
}
