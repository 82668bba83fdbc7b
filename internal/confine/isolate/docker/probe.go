package docker

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

const installHint = "install Docker 20.10 or later and start it (Debian: apt install docker.io), or name its socket in DOCKER_HOST"

// Probe checks that the daemon can run a sandbox with image.
//
// Errors: Unsupported; the text has the cause and the fix.
func (d *Isolator) Probe(ctx context.Context, image string) error {
	if err := checkRoot(); err != nil {
		return err
	}
	a, err := d.dial(ctx, isolate.ProcessLimits{})
	if err != nil {
		return err
	}
	defer a.close()
	if _, err := a.volumes(ctx, image); err != nil {
		return errdefs.New(errdefs.Unsupported, "%w; run: docker pull %s, or name another with --image", err, image)
	}
	return nil
}

func checkRoot() error {
	if os.Geteuid() != 0 {
		return errdefs.New(errdefs.Unsupported, "docker: only root can mount a view for the daemon; run agentfense as root, or use --runtime bwrap")
	}
	return nil
}

// checkDaemon checks the daemon's info.
func checkDaemon(info daemonInfo, l isolate.ProcessLimits) error {
	rootless := slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return strings.HasPrefix(o, "name=rootless") })
	missing := ""
	switch {
	case info.OSType != "linux":
		return errdefs.New(errdefs.Unsupported, "docker: the daemon makes %s containers, not linux", info.OSType)
	case rootless:
		return errdefs.New(errdefs.Unsupported, "docker: the daemon is rootless, so it cannot use agentfense's mounts and users; use one that runs as root")
	case l.MemoryBytes > 0 && !info.MemoryLimit:
		missing = "memory"
	case l.CPUs > 0 && (!info.CPUCfsPeriod || !info.CPUCfsQuota):
		missing = "cpu"
	case l.CPUShares > 0 && !info.CPUShares:
		missing = "cpu shares"
	case l.PIDs > 0 && !info.PidsLimit:
		missing = "pids"
	}
	if missing != "" {
		return errdefs.New(errdefs.Unsupported, "docker: the daemon cannot limit %s on this host: its cgroup controller is not mounted", missing)
	}
	return nil
}

var _ isolate.Isolator = (*Isolator)(nil)
