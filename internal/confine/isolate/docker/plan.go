package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// plan is a checked spec, with defaults filled in and the host's symbolic links resolved.
type plan struct {
	spec    isolate.Spec
	mounts  []isolate.Mount
	conceal []string
	covers  []string // of /proc and /sys
	volumes []string // of the image

	certificates certificates
}

// Directories inside that the kernel or the image provides, or that this package makes.
var (
	kernelDirs = []string{"/proc", "/sys", "/dev"}
	ownDirs    = []string{"/run", "/var/run"}
	systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/var"}
)

func newPlan(spec isolate.Spec) (*plan, error) {
	if (spec.Net == isolate.NetNamed) != (spec.MakeNet != nil) || spec.NetNS != nil {
		return nil, errdefs.New(errdefs.Internal, "start sandbox: the network and what makes it do not go together")
	}
	if spec.Shim != nil || spec.Temporary != nil || spec.Covered != nil || spec.Within != "" {
		return nil, errdefs.New(errdefs.Internal, "start sandbox: docker knows no inner sandboxes")
	}
	p := &plan{spec: spec}
	if err := p.fillIn(); err != nil {
		return nil, err
	}
	if err := p.checkUser(); err != nil {
		return nil, err
	}
	if err := checkTarget("workspace", p.spec.Workspace); err != nil {
		return nil, err
	}
	for _, dir := range spec.Conceal {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, errdefs.New(errdefs.Precondition, "conceal %q: %w", dir, err)
		}
		p.conceal = append(p.conceal, resolved)
	}
	for _, m := range spec.Mounts {
		if err := p.addMount(m); err != nil {
			return nil, err
		}
	}
	return p, p.findCovers()
}

// dockersCovers are the paths that a daemon covers by default (masked paths of the OCI
// runtime specification).
var dockersCovers = []string{
	"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
	"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
}

// findCovers sets the kernel files that are covered inside.
func (p *plan) findCovers() error {
	proc, err := isolate.ProcCovers()
	if err != nil {
		return err
	}
	for _, c := range proc {
		p.covers = append(p.covers, c.Path)
	}
	sys, err := isolate.SysCovers()
	for _, path := range slices.Concat(dockersCovers, sys) {
		if !isolate.IsBelowAny(path, p.covers) {
			p.covers = append(p.covers, path)
		}
	}
	return err
}

func (p *plan) fillIn() error {
	s := &p.spec
	if err := s.SetDefaults(); err != nil {
		return err
	}
	switch {
	case s.ID == "" || !filepath.IsAbs(s.Dir):
		return errdefs.New(errdefs.Invalid, "start sandbox: docker needs the sandbox's id and directory")
	case s.Image == "":
		return errdefs.New(errdefs.Invalid, "start sandbox: docker needs an image")
	case s.Cgroup != nil:
		return errdefs.New(errdefs.Invalid, "start sandbox: docker makes control groups itself")
	case !filepath.IsAbs(s.Home) || filepath.Clean(s.Home) != s.Home || strings.ContainsAny(s.Home+s.User, ":\n"):
		return errdefs.New(errdefs.Invalid, "user %q with home %q: contains a character that /etc/passwd does not allow", s.User, s.Home)
	}
	return nil
}

func (p *plan) checkUser() error {
	s := p.spec
	if err := checkRoot(); err != nil {
		return err
	}
	switch {
	case s.HostUID <= 0 || s.HostGID <= 0:
		return errdefs.New(errdefs.Invalid, "host user %d:%d: a sandbox started by root needs a user of its own", s.HostUID, s.HostGID)
	case s.UID != s.HostUID || s.GID != s.HostGID:
		return errdefs.New(errdefs.Invalid, "user %d:%d: docker uses the host's ids inside, which are %d:%d", s.UID, s.GID, s.HostUID, s.HostGID)
	}
	return nil
}

// checkTarget refuses targets at which nothing may be mounted.
func checkTarget(what, target string) error {
	switch {
	case !filepath.IsAbs(target) || filepath.Clean(target) != target || strings.Contains(target, "\x00"):
		return errdefs.New(errdefs.Invalid, "%s %q: not a clean absolute path", what, target)
	case target == "/" || slices.Contains(systemDirs, target):
		return errdefs.New(errdefs.Invalid, "%s %s: a system directory of the sandbox", what, target)
	case isolate.IsBelowAny(target, kernelDirs) || isolate.IsBelowAny(target, ownDirs):
		return errdefs.New(errdefs.Invalid, "%s %s: below a private directory of the sandbox", what, target)
	}
	return nil
}

// addMount checks a mount of the spec and resolves its source.
func (p *plan) addMount(m isolate.Mount) error {
	if m.Target == "" {
		m.Target = m.Source
	}
	if err := checkTarget("mount", m.Target); err != nil {
		return err
	}
	if safefs.IsBelow(m.Target, p.spec.Workspace) {
		return errdefs.New(errdefs.Invalid, "mount %s: inside the workspace %s", m.Target, p.spec.Workspace)
	}
	if m.View != "" { // its source is the caller's to check
		p.mounts = append(p.mounts, m)
		return nil
	}
	source, err := filepath.EvalSymlinks(m.Source)
	if err != nil {
		return errdefs.New(errdefs.NotFound, "mount %q: %w", m.Source, err)
	}
	st, err := os.Stat(source)
	switch {
	case err != nil:
		return errdefs.New(errdefs.NotFound, "mount %q: %w", m.Source, err)
	case !st.IsDir() && !st.Mode().IsRegular():
		return errdefs.New(errdefs.Invalid, "mount %q: neither a directory nor a regular file", m.Source)
	case !filepath.IsAbs(source) || source == "/" || isolate.IsBelowAny(source, kernelDirs) || isolate.IsBelowAny(source, ownDirs):
		return errdefs.New(errdefs.Invalid, "mount %q: a directory of the running system", m.Source)
	case isolate.IsBelowAny(source, p.conceal):
		return errdefs.New(errdefs.Invalid, "mount %q: the sandbox may see it only through its view, or not at all", m.Source)
	}
	p.mounts = append(p.mounts, isolate.Mount{Source: source, Target: m.Target})
	if !st.IsDir() {
		return nil
	}
	return isolate.CheckMount(source, p.conceal)
}

// addVolumes adds the directories that the image declares as volumes, as empty private
// directories. The daemon would store each on its disk, outside of every policy and limit.
func (p *plan) addVolumes(dirs []string) error {
	for _, dir := range dirs {
		dir = filepath.Clean(dir)
		switch _, covered := p.private()[dir]; {
		case p.spec.HomeDir != "" && (safefs.IsBelow(dir, p.spec.Home) || safefs.IsBelow(p.spec.Home, dir) && !covered):
			return errdefs.New(errdefs.Precondition, "image %s: its volume %s overlaps with the home %s", p.spec.Image, dir, p.spec.Home)
		case covered, dir == p.spec.Workspace:
		case safefs.IsBelow(dir, p.spec.Workspace), safefs.IsBelow(p.spec.Workspace, dir):
			return errdefs.New(errdefs.Precondition, "image %s: its volume %s overlaps with the workspace %s", p.spec.Image, dir, p.spec.Workspace)
		default:
			p.volumes = append(p.volumes, dir)
		}
	}
	return nil
}

// hasAlias reports whether isolate.Workspace also shows the view: the view is elsewhere,
// and nothing else is mounted there.
func (p *plan) hasAlias() bool {
	taken := func(path string) bool {
		return safefs.IsBelow(path, isolate.Workspace) || safefs.IsBelow(isolate.Workspace, path) && path != "/"
	}
	return !taken(p.spec.Workspace) && !taken(p.spec.Home) && !slices.ContainsFunc(p.volumes, taken) &&
		!slices.ContainsFunc(p.mounts, func(m isolate.Mount) bool { return taken(m.Target) })
}

// masks returns the paths inside at which a mount would show a concealed directory.
func (p *plan) masks() []string {
	var covered []string
	for _, m := range p.mounts {
		for _, c := range p.conceal {
			if m.View == "" && safefs.IsBelow(c, m.Source) {
				covered = append(covered, filepath.Join(m.Target, strings.TrimPrefix(c, m.Source)))
			}
		}
	}
	return covered
}

// private returns the sandbox's private directories, which start empty, with their mount
// options.
func (p *plan) private() map[string]string {
	own := func(mode string) string {
		return fmt.Sprintf("rw,exec,nosuid,nodev,mode=%s,uid=%d,gid=%d", mode, p.spec.UID, p.spec.GID)
	}
	dirs := map[string]string{"/tmp": own("1777"), "/var/tmp": own("1777"), "/run": own("0755")}
	for _, dir := range p.volumes {
		dirs[dir] = own("0755")
	}
	if p.spec.HomeDir == "" && !isolate.IsBelowAny(p.spec.Home, slices.Concat(systemDirs, kernelDirs, ownDirs)) && p.spec.Home != "/" {
		dirs[p.spec.Home] = own("0755")
	}
	delete(dirs, p.spec.Workspace)
	for _, m := range p.mounts {
		delete(dirs, m.Target)
	}
	for _, path := range p.masks() {
		dirs[path] = "ro,nosuid,nodev,noexec,mode=0555"
	}
	return dirs
}
