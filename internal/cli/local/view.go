package local

import (
	"context"
	"io"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
)

// localView is what a sandbox sees.
type localView struct {
	*readview.View
	lost error
}

// View opens what a sandbox sees.
func (b *Backend) View(ctx context.Context, name, mount string, again []string) (backend.View, error) {
	sb, err := b.open(name)
	if err == nil {
		err = b.asOwner(ctx, sb, again)
	}
	if err != nil {
		return nil, err
	}
	if mount != "" {
		v, err := readview.OpenMount(sb, mount)
		if err != nil {
			return nil, err
		}
		return localView{v, nil}, nil
	}
	_, lost := sb.SourceLost()
	v, err := readview.Open(b.home, sb)
	if err != nil {
		return nil, err
	}
	return localView{v, lost}, nil
}

// Lost is why the view lacks the source.
func (v localView) Lost() error { return v.lost }

// Stat describes a path.
func (v localView) Stat(_ context.Context, path vpath.Path) (readview.Entry, error) {
	return v.View.Stat(path)
}

// List lists a directory.
func (v localView) List(_ context.Context, dir vpath.Path) ([]readview.Entry, error) {
	return v.View.List(dir)
}

// Copy writes a file to w.
func (v localView) Copy(_ context.Context, w io.Writer, path vpath.Path) error {
	return v.View.Copy(w, path)
}
