// Package local does what the verbs ask for with the sandboxes of this host, which
// are directories of the state directory: it is the backend.Backend that needs no
// server.
//
// It prints nothing. It holds no sandbox between two calls: each call opens the one
// it names, and takes the locks that packages record, apply and supervise take.
package local

import (
	"context"
	"fmt"
	"sync"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/sandbox/secrets"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// Backend is the sandboxes of a state directory. It may be used concurrently.
type Backend struct {
	home    *record.Home
	getenv  func(string) string
	isOwner bool
	secrets *secrets.Finder
	ending  sync.WaitGroup // of supervisors that have let go of everything
}

var _ backend.Backend = (*Backend)(nil)

// New is the sandboxes of home. getenv looks up a variable of the caller. isOwner says
// that this process has capabilities over its own files, as launch.RunAsOwner gives them.
func New(home *record.Home, getenv func(string) string, isOwner bool) *Backend {
	return &Backend{home: home, getenv: getenv, isOwner: isOwner, secrets: &secrets.Finder{Getenv: getenv}}
}

// Close returns when no process is left of the sandboxes that were entered and left, unless they
// still run.
func (b *Backend) Close() error {
	b.ending.Wait()
	return nil
}

// open returns the sandbox called name.
func (b *Backend) open(name string) (*record.Sandbox, error) {
	sb, err := b.home.Open(name)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, errdefs.New(errdefs.NotFound, "%w%s", err, b.didYouMean(name))
	}
	return sb, err
}

// didYouMean ends an error's text with the name that is near, if one is.
func (b *Backend) didYouMean(name string) string {
	all, _ := b.home.List() // damaged ones have no name worth proposing
	names := make([]string, len(all))
	for i, sb := range all {
		names[i] = sb.Name()
	}
	if near := nearest.Word(name, names); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return ""
}

// client returns a client of the running sandbox, or nil if it does not run.
func client(ctx context.Context, sb *record.Sandbox) (*api.Client, error) {
	c, err := api.Dial(ctx, sb.Dir())
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, nil
	}
	return c, err
}

// ifRunning calls do with a client of the sandbox if it runs. One that stops meanwhile does not
// run: what its next start reads is stored.
func ifRunning(ctx context.Context, sb *record.Sandbox, do func(*api.Client) error) error {
	c, err := client(ctx, sb)
	if err != nil || c == nil {
		return err
	}
	if err := do(c); !errdefs.Is(err, errdefs.NotFound) {
		return err
	}
	return nil
}

// isClosed reports whether the changes of the sandbox, also those in its mounts, have a file that
// its owner may not read or change because of its mode.
func isClosed(sb *record.Sandbox) (bool, error) {
	for _, part := range sb.Parts() {
		dirs, err := part.LayerDirs()
		if err != nil {
			return false, err
		}
		for _, dir := range dirs {
			closed, err := rights.IsClosed(dir)
			if err != nil {
				return false, record.HostError("sandbox "+sb.Name(), err)
			}
			if closed {
				return true, nil
			}
		}
	}
	return false, nil
}

// asOwner returns nil if the sandbox's files can be read. If some are closed to their
// owner, it runs the program with the command line args, as one that may read them,
// and returns a *backend.DoneError. Without args, that is an error.
func (b *Backend) asOwner(ctx context.Context, sb *record.Sandbox, args []string) error {
	if b.isOwner {
		return nil
	}
	closed, err := isClosed(sb)
	if err != nil || !closed {
		return err
	}
	if args == nil {
		return errdefs.New(errdefs.Precondition, "sandbox %[1]s: it has files that their modes close to their owner: only commands in it can use them, or a person: agentfense diff %[1]s", sb.Name())
	}
	code, err := launch.RunAsOwner(ctx, args)
	if err != nil {
		return err
	}
	return &backend.DoneError{Code: code}
}
