// Package codebase keeps the directories that a server's sandboxes are made of.
//
// A codebase appears and disappears whole, by one rename, and so does every file: a reader sees the
// old file or the new one. The last committed of several uploads to one path wins. No path leads
// out of files/, and no symbolic link is followed (package safefs). What was committed survives the
// death of the process at once, and that of the machine within about a second.
//
// A linked directory is never changed and never read here: calls on its files are Precondition. The
// package knows no names, owners or sandboxes of codebases but by Options.OwnerOf; the caller
// decides who may delete a codebase, and when. Errors name paths inside the codebase only.
//
// Lock order: Codebase.telling, Codebase.mu, Store.mu; account.mu is the last.
package codebase

import (
	"errors"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// ID names a codebase for ever: "cb_" and 16 hex digits.
type ID = id.Codebase

// Names in a codebase's directory.
const (
	filesDir   = "files"
	stagingDir = "staging"
)

// Codebase is one codebase of a Store. It may be used concurrently.
//
// It is a directory below the store's:
//
//	ID/files/      what was uploaded and synchronized: the source of sandboxes
//	ID/staging/    uploads until they are whole, and what is being removed
//	ID/usage.json  how much files/ holds; there only while it is certain
//	ID/link.json   instead of files/, for a directory of the host that is linked
//
// A file is written in staging/ and moved; after a kill staging/ is swept. Size and number of files
// are kept as they change, and for each owner those of all codebases, with what is being uploaded.
// They are counted anew only if the process that last changed the codebase died before Close.
type Codebase struct {
	store *Store
	id    ID

	telling sync.Mutex // held while the observer is told

	mu     sync.Mutex // held while files or what follows change
	loaded bool
	gone   bool
	link   *Link // nil: uploaded
	usage  Usage
	clean  bool // usage.json holds usage

	account *account  // nil until the owner is known
	counted SizeDelta // what account knows of usage

	staged uint64
}

// ID returns the codebase's ID.
func (c *Codebase) ID() ID { return c.id }

// Source returns the absolute host path of the directory that sandboxes are
// made of. Errors: NotFound; for a linked directory Precondition, if another
// one stands there now, and as Link.
func (c *Codebase) Source() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.gone:
		return "", c.absent()
	case c.link != nil:
		return c.link.Path, c.link.check()
	}
	return filepath.Join(c.store.dir, string(c.id), filesDir), nil
}

// absent is the same for a malformed, an unknown and a deleted ID.
func (c *Codebase) absent() error { return noCodebase(c.id) }

func noCodebase(id ID) error {
	return errdefs.WithReason(errdefs.New(errdefs.NotFound, "codebase %s: no such codebase", vpath.Quote(string(id))), errdefs.CodebaseNotFound)
}

// usableLocked refuses what a linked or deleted codebase cannot do.
func (c *Codebase) usableLocked() error {
	switch {
	case c.gone:
		return c.absent()
	case c.link != nil:
		return errdefs.New(errdefs.Precondition, "codebase %s: it is a linked directory: use its sandboxes' files, or the directory itself", c.id)
	}
	return nil
}

func (c *Codebase) usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usableLocked()
}

// open opens the directory sub of the codebase's.
func (c *Codebase) open(sub string) (int, error) {
	fd, err := safefs.OpenDir(c.store.root(), string(c.id)+"/"+sub, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) {
		return -1, c.absent()
	}
	return fd, wrap("open", vpath.Root, err)
}

// at calls do with the files' directory.
func (c *Codebase) at(do func(files int) error) error {
	if err := c.usable(); err != nil {
		return err
	}
	files, err := c.open(filesDir)
	if err != nil {
		return err
	}
	defer unix.Close(files)
	return do(files)
}

// dirs are the directories of a codebase that a change needs.
type dirs struct {
	codebase       *Codebase
	files, staging int
}

// change calls do while nobody else changes the codebase, and tells the
// observer afterwards.
func (c *Codebase) change(do func(d dirs) error) error {
	err := c.changeQuietly(do)
	if err == nil {
		c.tell()
		c.store.flushSoon()
	}
	return err
}

func (c *Codebase) changeQuietly(do func(d dirs) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usableLocked(); err != nil {
		return err
	}
	if err := c.soilLocked(); err != nil {
		return err
	}
	if err := c.joinLocked(); err != nil && !errdefs.Is(err, errdefs.NotFound) {
		return err
	}
	d := dirs{codebase: c}
	var err error
	if d.files, err = c.open(filesDir); err != nil {
		return err
	}
	defer unix.Close(d.files)
	if d.staging, err = c.open(stagingDir); err != nil {
		return err
	}
	defer unix.Close(d.staging)
	return do(d)
}
