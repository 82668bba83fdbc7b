package bwrap

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

const (
	installHint = "run: apt install bubblewrap (or dnf, pacman, apk: the package has this name everywhere)"

	// The first release with --disable-userns.
	minMajor, minMinor = 0, 8
)

// Probe checks that bubblewrap can make a sandbox on this host, by making one.
//
// Errors: Unsupported; the text has the cause and the fix.
func (b *Isolator) Probe(ctx context.Context) error {
	path, err := b.find()
	if err != nil {
		return err
	}
	version, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return errdefs.New(errdefs.Unsupported, "run %s: %w", path, err)
	}
	if err := checkVersion(string(version)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path,
		"--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--as-pid-1", "--new-session", "--die-with-parent",
		"--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", path, "--version")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	var stderr isolate.Complaints
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return contextError(ctx)
		}
		return b.explain(tail(&stderr))
	}
	return nil
}

// checkVersion checks the output of bwrap --version: "bubblewrap 0.8.0".
func checkVersion(output string) error {
	version := strings.TrimPrefix(strings.TrimSpace(output), "bubblewrap ")
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return errdefs.New(errdefs.Unsupported, "bubblewrap: unknown version %q; %d.%d or later is needed", version, minMajor, minMinor)
	}
	if major > minMajor || major == minMajor && minor >= minMinor {
		return nil
	}
	return errdefs.New(errdefs.Unsupported, "bubblewrap %s is too old: %d.%d or later is needed for --disable-userns; install it from a newer release of the distribution or from source",
		version, minMajor, minMinor)
}

// setting is a kernel setting that can prevent users from making namespaces.
type setting struct {
	path    string
	blocks  string // the value that prevents it
	because string
	fix     string
}

var settings = []setting{
	{
		"kernel/unprivileged_userns_clone", "0", "user namespaces are for root only",
		"sysctl -w kernel.unprivileged_userns_clone=1",
	},
	{
		"user/max_user_namespaces", "0", "user namespaces are switched off",
		"sysctl -w user.max_user_namespaces=10000",
	},
	{
		"kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor restricts user namespaces to programs with a profile",
		"install AppArmor profiles with the rule \"userns,\" for agentfense and bwrap, or, for all programs: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
	},
}

// explain turns bubblewrap's error message into an error with the fix.
func (b *Isolator) explain(complaint string) error {
	if strings.Contains(complaint, "nknown option") {
		return errdefs.New(errdefs.Unsupported, "bubblewrap is too old (%s): %d.%d or later is needed", complaint, minMajor, minMinor)
	}
	if forbidden := b.Forbidden(); forbidden != "" {
		return errdefs.New(errdefs.Unsupported, "bubblewrap cannot make namespaces (%s): %s", orSilence(complaint), forbidden)
	}
	hint := ""
	switch {
	case strings.Contains(complaint, "Resource temporarily unavailable"): // EAGAIN, see clone(2)
		hint = "; a limit of processes is too small: the sandbox's own, or this user's (ulimit -u)"
	case strings.Contains(complaint, "namespace"), strings.Contains(complaint, "uid map"):
		hint = "; in a container, its runtime must allow user namespaces (Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined)"
	}
	return errdefs.New(errdefs.Unsupported, "bubblewrap cannot make a sandbox: %s%s", orSilence(complaint), hint)
}

// Forbidden names the setting of this host that prevents ordinary users from making
// namespaces, and how to change it. It returns "" if there is none.
func (b *Isolator) Forbidden() string {
	for _, s := range settings {
		value, err := os.ReadFile(filepath.Join(b.sysctls, s.path))
		if err == nil && strings.TrimSpace(string(value)) == s.blocks {
			return s.because + "; run as root: " + s.fix
		}
	}
	return ""
}

func orSilence(complaint string) string {
	if complaint == "" {
		return "it ended without an error message"
	}
	return complaint
}

// tail returns bubblewrap's last error message.
func tail(c *isolate.Complaints) string { return strings.TrimPrefix(c.Tail(), "bwrap: ") }
