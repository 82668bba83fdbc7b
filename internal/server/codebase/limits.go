package codebase

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// StorageLimits limit uploads; zero is no limit. Files that reach the codebase otherwise (see
// Change) are not limited, but count.
type StorageLimits struct {
	FileBytes int64 // of one file
	Bytes     int64 // of all files of a codebase
	Files     int64 // of a codebase

	// Of all codebases of one owner, with running uploads.
	OwnerBytes int64
	OwnerFiles int64 // and directories
}

// allowFile refuses a file that is larger than any codebase may hold.
func (l StorageLimits) allowFile(p vpath.Path, size int64) error {
	for _, most := range []int64{l.FileBytes, l.Bytes} {
		if most > 0 && size > most {
			return errdefs.New(errdefs.Exhausted, "upload %s: larger than the %w that are allowed", p, &errdefs.Limit{Most: most, Resource: "bytes"})
		}
	}
	return nil
}

// allowLocked refuses growth beyond the limits of a codebase; one above the limits may still
// shrink.
func (c *Codebase) allowLocked(p vpath.Path, g SizeDelta) error {
	l := c.store.limits
	switch {
	case l.Bytes > 0 && g.SizeBytes > 0 && safefs.AddSizes(c.usage.SizeBytes, g.SizeBytes) > l.Bytes:
		return errdefs.New(errdefs.Exhausted, "upload %s: the codebase would hold more than %w", p, &errdefs.Limit{Most: l.Bytes, Resource: "bytes"})
	case l.Files > 0 && g.FileCount > 0 && c.usage.FileCount+g.FileCount > l.Files:
		return errdefs.New(errdefs.Exhausted, "upload %s: the codebase would hold more than %w", p, &errdefs.Limit{Most: l.Files, Resource: "files"})
	}
	return nil
}
