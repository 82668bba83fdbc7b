package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/cgroup"
	"github.com/agentfense/agentfense/internal/confine/isolate/bwrap"
	"github.com/agentfense/agentfense/internal/confine/isolate/docker"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// finding is one line of doctor.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // "ok", "limited": works without it, "missing": nothing can run
	Detail string `json:"detail"`
}

const (
	statusOK      = "ok"
	statusLimited = "limited"
	statusMissing = "missing"
)

func newDoctor(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check which features of agentfense work on this host, and how to fix the others",
		Args:  cobra.NoArgs,
		Example: `  agentfense doctor
  agentfense doctor --json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), e, asJSON) },
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func runDoctor(ctx context.Context, e *env, asJSON bool) error {
	findings := []finding{
		e.checkHome(),
		checked("/dev/fuse", statusMissing, "can be opened", supervise.CheckFUSE()),
		checked("namespaces", statusMissing, "can be made", launch.Probe(ctx)),
		checked("bubblewrap", statusMissing, "can build a sandbox", bwrap.New(bwrap.Options{}).Probe(ctx)),
		checked("openat2", statusMissing, "known to the kernel", checkOpenat2()),
	}
	findings = append(findings, e.checkFeatures(ctx)...)
	findings = append(findings, checkCgroups()...)
	findings = append(findings, checked("docker", statusLimited, "can hold sandboxes (--runtime docker)", docker.New(docker.Options{}).Probe(ctx, defaultImage())))
	if asJSON {
		if err := e.printJSON(struct {
			SchemaVersion int       `json:"schema_version"`
			Checks        []finding `json:"checks"`
		}{schemaVersion, findings}); err != nil {
			return err
		}
		return verdict(findings)
	}
	for _, f := range findings {
		sgr := map[string]string{statusOK: "32", statusLimited: "33", statusMissing: "31"}[f.Status]
		status := e.colour(e.stdout, sgr, fmt.Sprintf("%-8s", f.Status))
		if _, err := fmt.Fprintf(e.stdout, "%s %-12s %s\n", status, f.Check, f.Detail); err != nil {
			return err
		}
	}
	return verdict(findings)
}

// verdict returns an error if no sandbox can run on this host.
func verdict(findings []finding) error {
	for _, f := range findings {
		if f.Status == statusMissing {
			return errdefs.New(errdefs.Unsupported, "doctor: no sandbox can run on this host until what is missing is fixed")
		}
	}
	return nil
}

// checked makes a finding of a check's error.
func checked(name, ifNot, fine string, err error) finding {
	if err != nil {
		return finding{Check: name, Status: ifNot, Detail: oneLine(err)}
	}
	return finding{Check: name, Status: statusOK, Detail: fine}
}

func (e *env) checkHome() finding {
	home, err := e.openHome()
	if err != nil {
		return checked("state", statusMissing, "", err)
	}
	return finding{Check: "state", Status: statusOK, Detail: home.Dir()}
}

// checkFeatures tries what not every sandbox needs.
func (e *env) checkFeatures(ctx context.Context) []finding {
	home, err := e.openHome()
	if err != nil {
		return nil // checkHome has told of it
	}
	var findings []finding
	for _, f := range []struct{ check, feature, fine, fix string }{
		{"allow-net", launch.Network, "sandboxes can reach named hosts (--allow-net, --secret, --publish)", "the kernel must let this user make network namespaces and raw sockets (inside a container: its runtime must allow it)"},
		{"scratch", launch.Scratch, "sandboxes can have scratch directories (--scratch)", "needs Linux 5.11 or later with overlayfs, and a state directory (AGENTFENSE_HOME) on a file system that overlayfs can write to, such as ext4 or xfs"},
	} {
		err := launch.ProbeFeature(ctx, f.feature, home.Dir())
		if err != nil {
			err = fmt.Errorf("%w: %s", err, f.fix)
		}
		findings = append(findings, checked(f.check, statusLimited, f.fine, err))
	}
	return findings
}

// checkOpenat2 tries openat2(2), with which agentfense stays beneath a directory (Linux
// 5.6; some container runtimes' seccomp profiles refuse it).
func checkOpenat2() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, ".", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return errdefs.New(errdefs.Unsupported, "%w: needs Linux 5.6 or later, and a container's seccomp profile that allows it", err)
	}
	return unix.Close(fd)
}

// checkCgroups says which limits can be enforced.
func checkCgroups() []finding {
	host, err := cgroup.Detect()
	if err != nil {
		return []finding{checked("cgroups", statusLimited, "", err)}
	}
	var findings []finding
	for _, c := range host.Controllers {
		f := finding{Check: "limit " + c.Name, Status: statusOK, Detail: fmt.Sprintf("enforced by cgroup v%d", c.Version)}
		switch {
		case c.Reason != "" && c.Name == cgroup.PIDs && supervise.LimitsProcesses():
			f.Detail = "enforced by RLIMIT_NPROC, which counts no refusals" + scopeFirst(c) + "; for a cgroup: " + c.Fix
		case c.Reason != "":
			f.Status, f.Detail = statusLimited, c.Reason+scopeFirst(c)+": "+c.Fix
		}
		findings = append(findings, f)
	}
	return findings
}

// scopeFirst says, for a missing controller, what a start of a sandbox tries.
func scopeFirst(c cgroup.Controller) string {
	if os.Geteuid() == 0 || c.Version == 1 {
		return ""
	}
	if err := launch.CheckUserManager(); err != nil {
		return " (no scope of the systemd user manager: " + err.Error() + ")"
	}
	return "; a start first asks the systemd user manager for a scope, which can enforce it"
}
