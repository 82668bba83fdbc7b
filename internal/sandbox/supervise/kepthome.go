package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// keptHome is the home directory that a sandbox keeps: layers of its own over an empty
// directory, shown by a file system of its own. So the limit of the disk bounds it with
// the delta, and the kernel serves it like the workspace in every runtime. The zero
// value is a sandbox that keeps none.
type keptHome struct {
	source *os.File // the empty directory that the view is mounted on
	stack  *layer.Stack
	view   *fusefs.FS
}

// wholeHome lets commands do in the kept home as they like.
var wholeHome = []policy.Rule{{Pattern: "/**", Type: policy.Glob, Permission: policy.Write}}

// mountHome shows the kept home, if there is one. It comes before the first process is
// started, as mountView does.
func (s *supervisor) mountHome(context.Context) error {
	dir, err := s.box.KeptHomeDir()
	if dir == "" || err != nil {
		return err
	}
	mountpoint := filepath.Join(s.box.Dir(), launch.HomeViewDir)
	if err := os.Mkdir(mountpoint, 0o700); err != nil && !os.IsExist(err) {
		return errdefs.New(errdefs.Internal, "kept home: %w", err)
	}
	h := &s.keptHome
	if h.source, err = os.Open(mountpoint); err != nil { // opened before, so it is what the view covers
		return errdefs.New(errdefs.Internal, "kept home: %w", err)
	}
	if h.stack, err = layer.Open(layer.Options{Source: h.source, Dir: dir, QuotaOf: s.stack}); err != nil {
		return err
	}
	p, err := policy.Compile(wholeHome, policy.Options{})
	if err != nil {
		return err
	}
	uid, gid := s.hostIDs()
	h.view, err = fusefs.Mount(mountpoint, fusefs.Options{
		Layer: h.stack, Policy: p, UID: uint32(uid), GID: uint32(gid), Logger: s.log,
	})
	return err
}

// done is closed when the file system has ended; nil if there is none.
func (h *keptHome) done() <-chan struct{} {
	if h.view == nil {
		return nil
	}
	return h.view.Done()
}

// close lets go of the layers. It comes after the end of the file system.
func (h *keptHome) close() error {
	var errs []error
	if h.stack != nil {
		errs = append(errs, h.stack.Close())
	}
	if h.source != nil {
		errs = append(errs, h.source.Close())
	}
	return errors.Join(errs...)
}
