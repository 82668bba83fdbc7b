package codebase

import (
	"sync"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// account is the total size of one owner's codebases, including running uploads.
type account struct {
	limits StorageLimits

	mu      sync.Mutex
	used    SizeDelta
	uploads int // running
}

// mostUploads limits the concurrent uploads of one owner, because each has an open file.
const mostUploads = 256

// accountOf returns the account of an owner.
func (s *Store) accountOf(owner string) *account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[owner]
	if a == nil {
		a = &account{limits: s.limits}
		s.accounts[owner] = a
	}
	return a
}

func (a *account) add(g SizeDelta) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = a.used.plus(g)
}

func (g SizeDelta) plus(more SizeDelta) SizeDelta {
	return SizeDelta{
		FileCount: g.FileCount + more.FileCount, DirCount: g.DirCount + more.DirCount,
		SizeBytes: safefs.AddSizes(g.SizeBytes, more.SizeBytes),
	}
}

func (g SizeDelta) minus(less SizeDelta) SizeDelta {
	return g.plus(SizeDelta{FileCount: -less.FileCount, DirCount: -less.DirCount, SizeBytes: -less.SizeBytes})
}

// joinLocked adds the codebase to its owner's account once the owner is known. Errors: those of
// Options.OwnerOf.
func (c *Codebase) joinLocked() error {
	if c.account != nil || c.store.ownerOf == nil || c.link != nil {
		return nil
	}
	owner, err := c.store.ownerOf(c.id)
	if err != nil {
		return err
	}
	c.account = c.store.accountOf(owner)
	c.settleLocked(nil)
	return nil
}

// settleLocked updates the account to the codebase's size. In the same step it releases the room
// that was held for the change, so that no other upload gets it meanwhile.
func (c *Codebase) settleLocked(h *hold) {
	if c.account == nil {
		return
	}
	now := SizeDelta{FileCount: c.usage.FileCount, DirCount: c.usage.DirCount, SizeBytes: min(c.usage.SizeBytes, mostSize)}
	if c.gone {
		now = SizeDelta{}
	}
	change := now.minus(c.counted)
	c.counted = now
	if h != nil {
		change = change.minus(h.size)
		h.size = SizeDelta{}
	}
	c.account.add(change)
}

// mostSize is the largest size that counts for one codebase or upload. A sparse file may have any
// size, and an overflow of the sum could not be undone.
const mostSize = 1 << 50

// hold is room in an owner's account for a running upload. The zero hold belongs to no account and
// has no limit. It is not safe for concurrent use.
type hold struct {
	account *account
	size    SizeDelta
	upload  bool // it counts as an upload
}

// hold reserves room for an upload. Errors: Exhausted.
func (c *Codebase) hold(p vpath.Path, g SizeDelta) (*hold, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.joinLocked(); err != nil {
		return nil, err
	}
	h := &hold{account: c.account}
	return h, h.grow(p, g)
}

// begin counts an upload. Errors: Exhausted.
func (h *hold) begin(p vpath.Path) error {
	a := h.account
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.uploads >= mostUploads {
		return errdefs.New(errdefs.Exhausted, "upload %s: the owner already has %w running: wait until one ends", p, &errdefs.Limit{Most: mostUploads, Resource: "uploads"})
	}
	a.uploads++
	h.upload = true
	return nil
}

// grow makes the hold larger by g. Errors: Exhausted.
func (h *hold) grow(p vpath.Path, g SizeDelta) error {
	a := h.account
	if a == nil {
		return nil
	}
	g.SizeBytes = min(g.SizeBytes, mostSize)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.allowLocked(p, g); err != nil {
		return err
	}
	a.used = a.used.plus(g)
	h.size = h.size.plus(g)
	return nil
}

// allowLocked refuses growth beyond an owner's limits. An owner above the limits may still shrink.
func (a *account) allowLocked(p vpath.Path, g SizeDelta) error {
	for _, of := range []struct {
		what, resource   string
		grow, used, most int64
	}{
		{"bytes", "bytes", g.SizeBytes, a.used.SizeBytes, a.limits.OwnerBytes},
		// A directory takes an inode, like a file.
		{"files and directories", "files", g.names(), a.used.names(), a.limits.OwnerFiles},
	} {
		if of.most > 0 && of.grow > 0 && safefs.AddSizes(of.used, of.grow) > of.most {
			return errdefs.New(errdefs.Exhausted,
				"upload %s: the codebases and uploads of the owner hold %d %s, and %w are allowed: delete files or codebases",
				p, of.used, of.what, &errdefs.Limit{Most: of.most, Resource: of.resource})
		}
	}
	return nil
}

// release gives the room back.
func (h *hold) release() {
	a := h.account
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = a.used.minus(h.size)
	if h.upload {
		a.uploads--
	}
	h.size, h.upload = SizeDelta{}, false
}
