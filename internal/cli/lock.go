package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// defaultLockWait is how long lock --wait waits.
const defaultLockWait = 10 * time.Minute

type lockOptions struct {
	Advisory, All bool
	Wait, For     time.Duration
}

func newLock(e *env) *cobra.Command {
	var o lockOptions
	cmd := &cobra.Command{
		Use:   "lock NAME PATH...",
		Short: "Lock paths of the source for a running sandbox",
		Long: `Lock paths for a sandbox that runs. In every other sandbox of the same source the
paths, and all below them, can then be read at most. That holds at once, also for files
that are open. A lock never shows what a policy hides. It ends with unlock, with --for,
or when the sandbox stops.

Locks of two sandboxes do not overlap: if another sandbox has one of the paths, lock
fails, or waits with --wait. Requests are served in order. Name all paths in one command:
it gets all of them, or none. A sandbox that has a lock cannot wait for another one, so
two sandboxes never wait for each other.

Only paths that the sandbox may write can be locked. The lock of a directory covers what
the sandbox may write below it. With --advisory, other sandboxes may still write; only
their locks are refused.`,
		Example: `  agentfense lock fix src/parser
  agentfense lock fix go.mod go.sum --wait=2m --for 10m
  agentfense lock ls fix`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: e.completeNames,
	}
	cmd.Flags().BoolVar(&o.Advisory, "advisory", false, "let other sandboxes still write the paths")
	cmd.Flags().DurationVar(&o.Wait, "wait", 0, "wait for locks of other sandboxes, up to 10m; for another time, up to 1h, write --wait=2m")
	cmd.Flags().Lookup("wait").NoOptDefVal = defaultLockWait.String()
	cmd.Flags().DurationVar(&o.For, "for", 0, "how long the lock lasts, such as 10m (default: until the sandbox stops)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for flag, value := range map[string]time.Duration{"wait": o.Wait, "for": o.For} {
			if changed(cmd, []string{flag}) && value <= 0 {
				return usageError{errdefs.New(errdefs.Invalid, "--%s %s: want a time above 0, such as 10m", flag, value)}
			}
		}
		if err := checkWait(o.Wait, args[1:]); err != nil {
			return err
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			paths, err := e.lockPaths(ctx, b, args[0], args[1:])
			if err != nil {
				return err
			}
			p := e.progressUnless(o.Wait == 0, "waiting for locks of other sandboxes")
			err = b.Lock(ctx, args[0], api.LockRequest{Paths: paths, Advisory: o.Advisory, Wait: o.Wait, For: o.For})
			p.stop()
			if err != nil {
				return sayWhoHolds(err, args[0])
			}
			what := plural(len(paths), "path")
			if len(paths) == 1 {
				what = "/" + vpath.Escape(vpath.DecodeText(paths[0]))
			}
			e.say("%s has locked %s", args[0], what)
			return nil
		})
	}
	cmd.AddCommand(newLockLs(e))
	marked(cmd)
	return cmd
}

// checkWait refuses a path that is a duration after a --wait without one: --wait 2m was meant to be
// --wait=2m.
func checkWait(wait time.Duration, paths []string) error {
	if wait != defaultLockWait {
		return nil
	}
	for _, p := range paths {
		if d, err := time.ParseDuration(p); err == nil && d > 0 {
			return usageError{errdefs.New(errdefs.Invalid, "lock: to wait for %[1]s, write --wait=%[1]s; to lock the path, write ./%[1]s", p)}
		}
	}
	return nil
}

// sayWhoHolds says how to see the locks for which a sandbox has waited in vain.
func sayWhoHolds(err error, name string) error {
	if !errdefs.Is(err, errdefs.Deadline) {
		return err
	}
	return errdefs.New(errdefs.Deadline, "%w; to see their locks: agentfense lock ls %s", err, vpath.Escape(name))
}

func newUnlock(e *env) *cobra.Command {
	var o lockOptions
	cmd := &cobra.Command{
		Use:   "unlock NAME {PATH... | --all}",
		Short: "End locks of a running sandbox",
		Long: `End locks that a sandbox has. The paths are named as in lock. Other sandboxes can then
do what their policies permit, and the next request that waits is served.`,
		Example: `  agentfense unlock fix src/parser
  agentfense unlock fix --all`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	cmd.Flags().BoolVar(&o.All, "all", false, "all locks of the sandbox")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.All == (len(args) > 1) {
			return usageError{errdefs.New(errdefs.Invalid, "unlock: want paths or --all")}
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			paths, err := e.lockPaths(ctx, b, args[0], args[1:])
			if err != nil {
				return err
			}
			return b.Unlock(ctx, args[0], api.LockRequest{Paths: paths, All: o.All})
		})
	}
	marked(cmd)
	return cmd
}

// lockPaths reads paths of a sandbox's source, as messages have them.
func (e *env) lockPaths(ctx context.Context, b backend.Backend, name string, args []string) ([]string, error) {
	var texts []string
	for _, arg := range args {
		p, err := workspacePath(arg)
		if err != nil || filepath.IsAbs(arg) {
			sb, unknown := b.Sandbox(ctx, name)
			if unknown != nil {
				return nil, unknown
			}
			if err == nil && belowSource(string(sb.Record.Source.Path), arg) != "" {
				err = usageError{errdefs.New(errdefs.Invalid, "path %s: it is a path of this host", vpath.Quote(arg))}
			}
		}
		if err != nil {
			return nil, e.explainPaths(ctx, b, name, "", args, err)
		}
		texts = append(texts, p.Text())
	}
	return texts, nil
}

// lockJSON is a lock for scripts, or a request that waits.
type lockJSON struct {
	Sandbox  string    `json:"sandbox"`
	Path     string    `json:"path"`
	Advisory bool      `json:"advisory,omitempty"`
	Waits    bool      `json:"waits,omitempty"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until,omitzero"`
}

func newLockLs(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [NAME]",
		Short: "List the locks of a source",
		Long: `List the locks of a source, and the requests that wait. The source is that of the sandbox
NAME, or the current directory.`,
		Example: `  agentfense lock ls fix
  agentfense lock ls --json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			name, err := e.boardOf(args)
			if err != nil {
				return err
			}
			list, err := b.Locks(ctx, name, ".")
			if err != nil {
				return err
			}
			return e.printLocks(list, asJSON)
		})
	}
	return cmd
}

func (e *env) printLocks(list []board.Entry, asJSON bool) error {
	if asJSON {
		locks := []lockJSON{}
		for _, l := range list {
			locks = append(locks, lockJSON{Sandbox: l.Sandbox, Path: l.Path, Advisory: l.Advisory, Waits: l.Waits, Since: l.Since, Until: l.Until})
		}
		return e.printJSON(struct {
			SchemaVersion int        `json:"schema_version"`
			Locks         []lockJSON `json:"locks"`
		}{schemaVersion, locks})
	}
	if len(list) == 0 {
		e.say("no path is locked")
		return nil
	}
	var rows [][]string
	for _, l := range list {
		state, until := "locked", "the sandbox stops"
		switch {
		case l.Waits:
			state, until = "waits", ""
		case l.Advisory:
			state = "advisory"
		}
		if !l.Until.IsZero() {
			until = present.LocalTime(l.Until)
		}
		rows = append(rows, []string{l.Sandbox, state, "/" + vpath.Escape(vpath.DecodeText(l.Path)), until})
	}
	return printTable(e.stdout, []string{"SANDBOX", "STATE", "PATH", "UNTIL"}, rows)
}

// describeLocks says which locks began or ended.
func describeLocks(v audit.LocksChanged) string {
	names := make([]string, len(v.Paths))
	for i, p := range v.Paths {
		names[i] = vpath.Escape(string(p))
	}
	text := fmt.Sprintf("%s %s: %s", vpath.Escape(v.Action), plural(len(v.Paths), "path"), strings.Join(names, ", "))
	if v.Advisory {
		text += " (advisory)"
	}
	if v.ForMS > 0 {
		text += " for " + (time.Duration(v.ForMS) * time.Millisecond).String()
	}
	switch v.Reason {
	case audit.LocksTimeOver:
		text += ": the time is over"
	case audit.LocksStopped:
		text += ": the sandbox stops"
	case audit.LocksKilled:
		text += ": sandbox " + vpath.Escape(v.Sandbox) + " was killed"
	}
	return text
}
