package gitrun

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Transfer packs what the revisions reach in one repository and indexes the pack in another, with
// options of git index-pack. It returns what that prints.
func (g *Git) Transfer(ctx context.Context, from, to, revisions string, options ...string) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", hostError(err)
	}
	packed := make(chan error, 1)
	go func() {
		err := g.Pipe(ctx, from, strings.NewReader(revisions), w, "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q")
		packed <- errors.Join(err, w.Close())
	}()
	out, err := g.Run(ctx, to, r, append([]string{"index-pack"}, options...)...)
	_ = r.Close()
	if failure := <-packed; failure != nil && (err == nil || !IsBroken(failure)) {
		return "", failure // which made the other one fail
	}
	return out, err
}

// IsBroken reports whether git ended because nobody reads what it writes.
func IsBroken(err error) bool {
	exit, is := errors.AsType[*exec.ExitError](err)
	if !is {
		return false
	}
	status, is := exit.Sys().(syscall.WaitStatus)
	return is && status.Signaled() && status.Signal() == syscall.SIGPIPE
}
