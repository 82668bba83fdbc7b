package bwrap

import (
	"path/filepath"
	"slices"
	"strconv"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// Paths of the stage's parts for sandboxes inside of sandboxes.
const (
	stageShim       = stageDir + "/shim"
	stageShimSocket = stageDir + "/shim.socket"
)

func stageTemporary(path string) string { return stageDir + "/temporary" + path }

// shimPlaces are where programs look for bubblewrap, as far as the host has it there.
func shimPlaces() []string {
	var places []string
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		resolved, err := filepath.EvalSymlinks(filepath.Join(dir, "bwrap"))
		if err == nil && isolate.IsBelowAny(resolved, systemDirs) && !slices.Contains(places, resolved) {
			places = append(places, resolved)
		}
	}
	return places
}

// openShim adds the sources of the shim and of the temporary directories.
func (p *plan) openShim(add func(what, path, target string) error) error {
	if shim := p.spec.Shim; shim != nil {
		if err := add("the stand-in for bubblewrap", shim.Program, stageShim); err != nil {
			return err
		}
		if shim.Socket != "" {
			if err := add("the socket for inner sandboxes", shim.Socket, stageShimSocket); err != nil {
				return err
			}
		}
	}
	for path, dir := range p.spec.Temporary {
		if err := add("the directory for "+path, dir, stageTemporary(path)); err != nil {
			return err
		}
	}
	return nil
}

// showShim mounts the shim over bubblewrap, and its socket over the notes, which are there.
func (p *plan) showShim(a *arguments) {
	shim := p.spec.Shim
	if shim == nil {
		return
	}
	for _, place := range shimPlaces() {
		a.add("--ro-bind", stageShim, place)
	}
	if shim.Socket != "" {
		a.add("--ro-bind", stageShimSocket, isolate.ShimSocket)
	}
}

// targets are where views and mounts are.
func (p *plan) targets() []string {
	targets := []string{p.spec.Workspace}
	if p.hasAlias() {
		targets = append(targets, isolate.Workspace)
	}
	for _, m := range p.mounts {
		targets = append(targets, m.Target)
	}
	return targets
}

// covered makes what an inner sandbox hides: first what has views, mounts and temporary directories
// below it, which are mounted on top, and then the rest.
func (p *plan) covered(a *arguments, above bool) {
	targets := append(p.targets(), "/tmp", "/var/tmp", p.spec.Home)
	for _, c := range p.spec.Covered {
		isAbove := slices.ContainsFunc(targets, func(target string) bool { return target != c.Path && safefs.IsBelow(target, c.Path) })
		switch {
		case isAbove != above:
		case c.File:
			a.add("--ro-bind", stageEmptyFile, c.Path)
		default:
			a.add("--perms", strconv.FormatUint(uint64(c.Mode), 8), "--tmpfs", c.Path)
			if c.ReadOnly {
				a.add("--remount-ro", c.Path)
			}
		}
	}
}

// checkInner refuses what cannot be mounted safely: bubblewrap would follow symbolic links that
// commands left in a temporary directory.
func (p *plan) checkInner() error {
	for path := range p.spec.Temporary {
		if path != "/tmp" && path != "/var/tmp" && path != p.spec.Home {
			return errdefs.New(errdefs.Internal, "temporary directory %s: not one of the sandbox's", path)
		}
		for _, target := range append(p.targets(), p.spec.Home) {
			if target != path && safefs.IsBelow(target, path) {
				return errdefs.New(errdefs.Internal, "temporary directory %s: overlaps with the mount %s", path, target)
			}
		}
	}
	for _, c := range p.spec.Covered {
		if c.Path == "/" || isolate.IsBelowAny(c.Path, kernelDirs) && c.Path != "/dev/shm" {
			return errdefs.New(errdefs.Unsupported, "%s: cannot be hidden", c.Path)
		}
	}
	return nil
}
