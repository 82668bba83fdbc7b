package cli

import (
	"context"

	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/vpath"
)

// A server keeps what it has shown by digest and remembers of nobody which was
// last: that the command line does, in its own state directory.

// shownOnServer returns the digest of what was shown last of a server's sandbox.
func (e *env) shownOnServer(sb control.Sandbox) (string, error) {
	home, err := e.openHome()
	if err != nil {
		return "", err
	}
	return home.ShownOf(sb.Record.ID)
}

// noteShown notes what shownOnServer returns.
func (e *env) noteShown(sb control.Sandbox, digest string) error {
	home, err := e.openHome()
	if err != nil {
		return err
	}
	return home.SetShownOf(sb.Record.ID, digest)
}

// shownBeforeOnServer is shownBefore of a server's sandbox.
func (e *env) shownBeforeOnServer(ctx context.Context, s control.Server, sb control.Sandbox, paths []vpath.Path, o diffOptions) (string, error) {
	if len(paths) == 0 || o.Stat || o.NameStatus {
		return "", nil
	}
	last, err := e.shownOnServer(sb)
	if err != nil || last != "" || sb.Status == control.Running {
		return last, err
	}
	return digestOnServer(ctx, s, sb, nil)
}

// digestOnServer returns the digest of what is there now.
func digestOnServer(ctx context.Context, s control.Server, sb control.Sandbox, paths []vpath.Path) (string, error) {
	review, err := s.Review(ctx, sb, paths, false, "")
	if err != nil {
		return "", err
	}
	return review.Remember("", nil)
}

// reviewedOnServer returns the digest of what an apply takes, "" for all that is
// there.
func (e *env) reviewedOnServer(ctx context.Context, s control.Server, sb control.Sandbox, paths []vpath.Path, o applyOptions) (string, error) {
	if o.Latest || o.Reviewed != "" {
		return o.Reviewed, nil
	}
	last, err := e.shownOnServer(sb)
	if err != nil || last != "" || sb.Status != control.Running {
		return last, err
	}
	return digestOnServer(ctx, s, sb, paths)
}

// sayHeld says that what a command changed waits in the sandbox.
func (e *env) sayHeld(name string, exit control.Exit) {
	if exit.SyncHeld {
		e.say("the changes stay in the sandbox: a token without the scope apply has run a command in it; with that scope: agentfense apply %s", name)
	}
}
