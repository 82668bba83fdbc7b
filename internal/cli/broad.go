package cli

import (
	"os"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// confirmBroad asks before a sandbox is made of the whole root or of the user's
// home directory, which hold far more than one project. Errors: Invalid without a
// yes; where nobody can answer it says how to go on.
func (o *sandboxOptions) confirmBroad(e *env, dir string) error {
	what := broad(dir)
	if o.Yes || what == "" {
		return nil
	}
	const how = "name a project's directory with --dir, or give --yes"
	if !e.canAsk() {
		return errdefs.New(errdefs.Invalid, "source %s: it is %s; %s", record.HostPath(dir), what, how)
	}
	e.say("%s is %s: the command would see all of it that the policy shows, also secrets under names that no preset knows", record.HostPath(dir), what)
	if !e.confirm("Make a sandbox of it?") {
		return errdefs.New(errdefs.Invalid, "source %s: not confirmed; %s", record.HostPath(dir), how)
	}
	return nil
}

// broad says what dir is if it is more than a project, else "".
func broad(dir string) string {
	info, err := os.Stat(dir)
	if err != nil {
		return "" // what opens it says so
	}
	same := func(path string) bool {
		other, err := os.Stat(path)
		return err == nil && os.SameFile(info, other)
	}
	if same("/") {
		return "the whole root of this host"
	}
	if home, err := os.UserHomeDir(); err == nil && same(home) {
		return "your home directory"
	}
	return ""
}
