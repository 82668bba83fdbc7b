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

// initPath is the path by which bubblewrap executes PID 1: through a descriptor, so that
// the binary has no name inside and no mount table shows its host path.
const initPath = "/proc/self/fd/8"

// arguments returns bubblewrap's options in the form of --args: each followed by a NUL.
// Bubblewrap executes them in order.
func (p *plan) arguments(*stage) ([]byte, error) {
	var a arguments
	p.isolation(&a)
	if err := p.system(&a); err != nil {
		return nil, err
	}
	p.covered(&a, true)
	p.private(&a)
	p.showCertificates(&a)
	p.devices(&a)
	p.showShim(&a)
	p.shown(&a)
	p.covered(&a, false)
	a.add("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/")
	return a.encode()
}

// arguments collects options.
type arguments struct{ list []string }

func (a *arguments) add(args ...string) { a.list = append(a.list, args...) }

func (a *arguments) encode() ([]byte, error) {
	for _, arg := range a.list {
		if strings.Contains(arg, "\x00") {
			return nil, errdefs.New(errdefs.Invalid, "path %q: contains a NUL byte", arg)
		}
	}
	return []byte(strings.Join(a.list, "\x00") + "\x00"), nil
}

// isolation adds all options that are not mounts.
func (p *plan) isolation(a *arguments) {
	a.add("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup")
	if p.spec.Net == isolate.NetNone {
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

// system mounts the host's programs, read-only.
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

// missingPoints returns the mount points that do not exist on the host, which bubblewrap
// cannot make in a read-only tree.
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

// tree mounts dir read-only. If one of points is below dir, tree makes a new directory with
// a mount of each entry, so that bubblewrap can make the point among them.
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

// private makes the sandbox's private directories, which start empty.
func (p *plan) private(a *arguments) {
	p.temporary(a, "1777", "/tmp")
	a.add("--perms", "0755", "--tmpfs", "/run")
	p.temporary(a, "1777", "/var/tmp")
	a.add("--symlink", "../run", "/var/run",
		"--proc", "/proc")
	for _, c := range p.covers {
		a.add("--ro-bind", stageCover(c), c.Path)
	}
	if p.spec.Notes != "" { // the home may be below it
		a.add("--ro-bind", stageNote, isolate.NotesDir)
	}
	if p.spec.HomeDir != "" {
		a.add("--bind", stageHome, p.spec.Home)
		return
	}
	if !isolate.IsBelowAny(p.spec.Home, slices.Concat(systemDirs, kernelDirs, []string{"/etc"})) && p.spec.Home != "/" {
		p.temporary(a, "0755", p.spec.Home)
	}
}

// temporary makes a directory that starts empty, or shows the spec's.
func (p *plan) temporary(a *arguments, mode, path string) {
	if p.spec.Temporary[path] != "" {
		a.add("--bind", stageTemporary(path), path)
		return
	}
	a.add("--perms", mode, "--tmpfs", path)
}

// devices makes /dev: harmless devices, shared memory, terminals.
func (p *plan) devices(a *arguments) {
	a.add("--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm")
	if p.spec.DevPTS != "" {
		a.add("--dev-bind", stagePTS, "/dev/pts")
	}
}

// shown adds the requested mounts, outer before inner, and then the view.
func (p *plan) shown(a *arguments) {
	for i, m := range p.mounts {
		if m.View != "" {
			a.add("--bind", p.staged(m.View), m.Target)
			continue
		}
		a.add("--ro-bind", stageMount(i), m.Target)
		cover(a, p.masks(m.Source, m.Target))
	}
	a.add("--bind", p.staged(p.spec.ViewName), p.spec.Workspace)
	if p.hasAlias() {
		a.add("--bind", p.staged(p.spec.ViewName), isolate.Workspace) // a mount and not a link, because find and other programs do not follow links
	}
}

// staged returns the path of a view on the stage. Bubblewrap looks its name up, because this
// process serves the views and must not access them.
func (p *plan) staged(name string) string { return filepath.Join(stageView, name) }

// hasAlias reports whether isolate.Workspace also shows the view: the view is elsewhere,
// and nothing else is mounted there.
func (p *plan) hasAlias() bool {
	taken := func(path string) bool { return safefs.IsBelow(path, isolate.Workspace) }
	return !taken(p.spec.Workspace) && !taken(p.spec.Home) && !slices.ContainsFunc(p.mounts, func(m mount) bool { return taken(m.Target) })
}

// cover mounts an empty, read-only directory over each path.
func cover(a *arguments, paths []string) {
	for _, path := range paths {
		a.add("--perms", "0555", "--tmpfs", path, "--remount-ro", path)
	}
}
