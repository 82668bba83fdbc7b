package cli

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// A server keeps what it has shown by digest and remembers of nobody which was
// last: that the command line does, in its own state directory.

// shownOnServer returns what was shown last of a server's sandbox.
func (e *env) shownOnServer(sb backend.Sandbox) (last backend.Reviewed, err error) {
	home, err := e.openHome()
	if err != nil {
		return last, err
	}
	if last.Digest, err = home.ShownOf(sb.Record.ID); err != nil || last.Digest == "" {
		return last, err
	}
	u, err := e.uploadOf(sb)
	if err == nil && u != nil {
		last.Shown, err = apply.LastShownOf(u, last.Digest)
	}
	return last, err
}

// noteShown notes what shownOnServer returns.
func (e *env) noteShown(sb backend.Sandbox, last backend.Reviewed) error {
	home, err := e.openHome()
	if err != nil {
		return err
	}
	u, err := e.uploadOf(sb)
	if err == nil && u != nil && last.Shown != nil {
		err = apply.SetShown(u, last.Digest, last.Shown)
	}
	if err != nil {
		return err
	}
	return home.SetShownOf(sb.Record.ID, last.Digest)
}

// shownBeforeOnServer is shownBefore of a server's sandbox.
func (e *env) shownBeforeOnServer(ctx context.Context, s backend.Server, sb backend.Sandbox, paths []vpath.Path, o diffOptions) (backend.Reviewed, error) {
	if len(paths) == 0 || o.Stat || o.NameStatus {
		return backend.Reviewed{}, nil
	}
	last, err := e.shownOnServer(sb)
	if errdefs.Is(err, errdefs.NotFound) { // of an earlier agentfense: what is shown now counts alone
		return last, nil
	}
	if err != nil || last.Digest != "" || sb.Status == record.Running {
		return last, err
	}
	return backend.ReviewNow(ctx, s, sb, nil)
}

// reviewedOnServer returns what an apply takes. Of a digest from elsewhere nobody
// here knows what was shown.
func (e *env) reviewedOnServer(ctx context.Context, s backend.Server, sb backend.Sandbox, paths []vpath.Path, o applyOptions) (backend.Reviewed, error) {
	if o.Latest {
		return backend.Reviewed{}, nil
	}
	last, err := e.shownOnServer(sb)
	if o.Reviewed != "" && o.Reviewed != last.Digest {
		return backend.Reviewed{Digest: o.Reviewed}, nil
	}
	if err != nil || last.Digest != "" || sb.Status != record.Running {
		return last, err
	}
	return backend.ReviewNow(ctx, s, sb, paths)
}

// sayHeld says that what a command changed waits in the sandbox.
func (e *env) sayHeld(name string, exit backend.Exit) {
	if exit.SyncHeld {
		e.say("the changes stay in the sandbox, because a token without the scope apply ran a command in it; to apply them with a token that has the scope: agentfense apply %s", name)
	}
}
