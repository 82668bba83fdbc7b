package bwrap

import (
	"cmp"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// plan is a spec that was checked, with its defaults filled in and the host's
// symbolic links resolved.
type plan struct {
	spec     isolate.Spec
	mounts   []mount // in the order of their targets
	conceal  []string
	program  string             // bubblewrap, if the stage will cover it
	covers   []isolate.Cover    // of /proc
	etcDirs  []string           // directories of the host's /etc to bind
	etcFiles map[string]etcFile // files and links, by path inside
}

// mount is a mount whose source is resolved.
type mount struct {
	isolate.Mount
	dir bool // source and target are directories
}

// Directories that are the kernel's, the running system's or ours to make.
// None is a source of a mount, and no workspace or mount covers one.
var (
	kernelDirs = []string{"/proc", "/sys", "/dev"}
	volatile   = []string{"/run", "/var/run"}
	systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
)

// localDir is the part of /usr that is not a distribution's: services that were
// installed by hand may have their sockets there.
const localDir = "/usr/local"

func newPlan(spec isolate.Spec) (*plan, error) {
	if spec.Image != "" || spec.Limits != (isolate.ProcessLimits{}) {
		return nil, errdefs.New(errdefs.Invalid, "start sandbox: bwrap has no images and sets no limits itself")
	}
	if spec.Net > isolate.NetHost {
		return nil, errdefs.New(errdefs.Unsupported, "start sandbox: bwrap has the host's network or none")
	}
	p := &plan{spec: spec}
	p.spec.ID = cmp.Or(spec.ID, rand.Text())
	if err := p.fillIn(); err != nil {
		return nil, err
	}
	if err := p.checkUser(); err != nil {
		return nil, err
	}
	if err := p.checkTarget("workspace", p.spec.Workspace); err != nil {
		return nil, err
	}
	for _, dir := range spec.Conceal {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, errdefs.New(kindOf(err), "conceal %q: %w", dir, cause(err))
		}
		if safefs.IsBelow("/usr", resolved) {
			return nil, errdefs.New(errdefs.Invalid, "%q: holds /usr, which every sandbox sees", dir)
		}
		p.conceal = append(p.conceal, resolved)
	}
	for _, m := range spec.Mounts {
		if err := p.addMount(m); err != nil {
			return nil, err
		}
	}
	if err := p.checkHome(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(p.mounts, func(a, b mount) int { return strings.Compare(a.Target, b.Target) })
	p.etcDirs = etcDirs()
	var err error
	p.covers, err = isolate.ProcCovers()
	return p, err
}

func (p *plan) fillIn() error {
	s := &p.spec
	if err := s.SetDefaults(); err != nil {
		return err
	}
	if !filepath.IsAbs(s.Home) || filepath.Clean(s.Home) != s.Home {
		return errdefs.New(errdefs.Invalid, "home %q: not a clean absolute path", s.Home)
	}
	for _, name := range []string{s.User, s.Hostname} {
		if name == "" || strings.ContainsAny(name, ":/ \t\n\x00") {
			return errdefs.New(errdefs.Invalid, "name %q: not usable in /etc", name)
		}
	}
	return nil
}

// checkUser makes sure that a sandbox never runs as root of the host: user 0
// owns /proc/sys and much else, with or without capabilities.
func (p *plan) checkUser() error {
	s := p.spec
	if os.Geteuid() != 0 {
		if s.HostUID > 0 && s.HostUID != os.Geteuid() || s.HostGID > 0 && s.HostGID != os.Getegid() {
			return errdefs.New(errdefs.Invalid, "host user %d:%d: only root can start a sandbox as another user", s.HostUID, s.HostGID)
		}
		return nil
	}
	if s.HostUID <= 0 || s.HostGID <= 0 {
		return errdefs.New(errdefs.Invalid, "host user %d:%d: a sandbox started by root needs a user of its own", s.HostUID, s.HostGID)
	}
	return nil
}

// credential is the user bubblewrap runs as, nil for our own.
func (p *plan) credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(p.spec.HostUID), Gid: uint32(p.spec.HostGID)}
}

// checkTarget refuses places inside at which nothing may be mounted.
func (p *plan) checkTarget(what, target string) error {
	switch {
	case !filepath.IsAbs(target) || filepath.Clean(target) != target || strings.Contains(target, "\x00"):
		return errdefs.New(errdefs.Invalid, "%s %q: not a clean absolute path", what, target)
	case target == "/" || target == "/etc" || target == "/run" || target == "/var" || slices.Contains(systemDirs, target):
		return errdefs.New(errdefs.Invalid, "%s %s: a system directory of the sandbox", what, target)
	case isolate.IsBelowAny(target, kernelDirs):
		return errdefs.New(errdefs.Invalid, "%s %s: below a directory of the kernel", what, target)
	}
	for _, dir := range systemDirs[1:] {
		if safefs.IsBelow(target, dir) && !isRealDir(dir) {
			return errdefs.New(errdefs.Invalid, "%s %s: %s is a link inside; use the path it leads to", what, target, dir)
		}
	}
	return nil
}

// addMount checks a further mount and resolves its source.
func (p *plan) addMount(m isolate.Mount) error {
	if m.Target == "" {
		m.Target = m.Source
	}
	if err := p.checkTarget("mount", m.Target); err != nil {
		return err
	}
	if safefs.IsBelow(m.Target, p.spec.Workspace) {
		return errdefs.New(errdefs.Invalid, "mount %s: inside the workspace %s", m.Target, p.spec.Workspace)
	}
	source, err := filepath.EvalSymlinks(m.Source)
	if err != nil {
		return errdefs.New(kindOf(err), "mount %q: %w", m.Source, cause(err))
	}
	st, err := os.Stat(source)
	if err != nil {
		return errdefs.New(kindOf(err), "mount %q: %w", m.Source, cause(err))
	}
	if !st.IsDir() && !st.Mode().IsRegular() {
		return errdefs.New(errdefs.Invalid, "mount %q: neither a directory nor a regular file", m.Source)
	}
	if source == "/" || isolate.IsBelowAny(source, kernelDirs) || isolate.IsBelowAny(source, volatile) {
		return errdefs.New(errdefs.Invalid, "mount %q: a directory of the running system", m.Source)
	}
	for _, c := range p.conceal {
		if safefs.IsBelow(source, c) {
			return errdefs.New(errdefs.Invalid, "mount %q: lies in %s, which the sandbox sees through its view alone, or not at all", m.Source, c)
		}
	}
	p.mounts = append(p.mounts, mount{isolate.Mount{Source: source, Target: m.Target}, st.IsDir()})
	if !st.IsDir() {
		return nil
	}
	return isolate.CheckMount(source, p.conceal)
}

// checkHome refuses a home directory of the host's in which, or around which,
// something else is mounted: bubblewrap would follow the links that commands have
// left there, outside.
func (p *plan) checkHome() error {
	home := p.spec.Home
	if p.spec.HomeDir == "" {
		return nil
	}
	if err := p.checkTarget("home", home); err != nil {
		return err
	}
	targets := []string{p.spec.Workspace}
	if p.hasAlias() {
		targets = append(targets, isolate.Workspace)
	}
	for _, m := range p.mounts {
		targets = append(targets, m.Target)
	}
	for _, target := range targets {
		if safefs.IsBelow(target, home) || safefs.IsBelow(home, target) {
			return errdefs.New(errdefs.Invalid, "home %s: it and the mount %s lie in each other", home, target)
		}
	}
	return nil
}

// masks returns the places inside at which a concealed directory would show
// through the tree at source, shown at target.
func (p *plan) masks(source, target string) []string {
	var covered []string
	for _, c := range p.conceal {
		if safefs.IsBelow(c, source) {
			covered = append(covered, filepath.Join(target, strings.TrimPrefix(c, source)))
		}
	}
	return covered
}

func isRealDir(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.IsDir()
}
