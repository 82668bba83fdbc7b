package bwrap

import (
	"cmp"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// plan is a checked spec, with defaults filled in and the host's symbolic links resolved.
type plan struct {
	spec     isolate.Spec
	mounts   []mount // ordered by target
	conceal  []string
	program  string             // path of bubblewrap, if the stage will cover it
	covers   []isolate.Cover    // of /proc
	etcDirs  []string           // directories of the host's /etc to bind
	etcFiles map[string]etcFile // by path inside

	certificates map[string][]byte // of isolate.CertificatesDir, by name; nil without an authority
	bundles      []string          // files of the host in whose place the bundle is shown
}

// mount is a mount with a resolved source.
type mount struct {
	isolate.Mount
	dir bool // source and target are directories
}

// Directories of the kernel, of the running system, or that this package makes. They may be
// neither the source nor the target of a mount, nor the workspace.
var (
	kernelDirs = []string{"/proc", "/sys", "/dev"}
	volatile   = []string{"/run", "/var/run"}
	systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
)

// localDir is the part of /usr that the distribution does not own. Services that a user
// installed there may have sockets in it.
const localDir = "/usr/local"

func newPlan(spec isolate.Spec) (*plan, error) {
	if spec.Image != "" || spec.Limits != (isolate.ProcessLimits{}) {
		return nil, errdefs.New(errdefs.Invalid, "start sandbox: bwrap supports neither images nor limits")
	}
	if spec.Net == isolate.NetBridge {
		return nil, errdefs.New(errdefs.Unsupported, "start sandbox: bwrap has no bridge network")
	}
	if (spec.Net == isolate.NetNamed) != (spec.NetNS != nil) || spec.MakeNet != nil {
		return nil, errdefs.New(errdefs.Internal, "start sandbox: the network and its namespace do not go together")
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
			return nil, errdefs.New(errdefs.Invalid, "%q: contains /usr, which every sandbox sees", dir)
		}
		p.conceal = append(p.conceal, resolved)
	}
	for _, m := range spec.Mounts {
		if err := p.addMount(m); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(p.checkHome(), p.checkInner()); err != nil {
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
			return errdefs.New(errdefs.Invalid, "name %q: contains a character that files of /etc do not allow", name)
		}
	}
	return nil
}

// checkUser makes sure that a sandbox never runs as root of the host: user 0 owns /proc/sys
// and other files, with or without capabilities.
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

// credential returns the user of bubblewrap, or nil for the user of this process.
func (p *plan) credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(p.spec.HostUID), Gid: uint32(p.spec.HostGID)}
}

// checkTarget refuses targets at which nothing may be mounted.
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
			return errdefs.New(errdefs.Invalid, "%s %s: %s is a symbolic link inside; use its target", what, target, dir)
		}
	}
	return nil
}

// addMount checks a mount of the spec and resolves its source.
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
	if m.View != "" { // its source is the caller's to check
		p.mounts = append(p.mounts, mount{m, true})
		return nil
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
			return errdefs.New(errdefs.Invalid, "mount %q: is in %s, which the sandbox may see only through its view, or not at all", m.Source, c)
		}
	}
	p.mounts = append(p.mounts, mount{isolate.Mount{Source: source, Target: m.Target}, st.IsDir()})
	if !st.IsDir() {
		return nil
	}
	return isolate.CheckMount(source, p.conceal)
}

// checkHome refuses a mount inside or around a home directory of the host. Bubblewrap would
// follow symbolic links that commands left in the home, out of it.
func (p *plan) checkHome() error {
	home := p.spec.Home
	if p.spec.HomeDir == "" {
		return nil
	}
	if err := p.checkTarget("home", home); err != nil {
		return err
	}
	for _, target := range p.targets() {
		if safefs.IsBelow(target, home) || safefs.IsBelow(home, target) {
			return errdefs.New(errdefs.Invalid, "home %s: overlaps with the mount %s", home, target)
		}
	}
	return nil
}

// masks returns the paths inside at which the tree source, mounted at target, would show a
// concealed directory.
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
