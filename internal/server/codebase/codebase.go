// Package codebase stores the directories from which a server creates sandboxes.
//
// A codebase is created and deleted by one rename, and so is every file: a reader sees the old file
// or the new one. Of several uploads to one path the last commit wins. No path leads out of files/,
// and no symbolic link is followed (package safefs). A commit survives a killed process at once,
// and a crash of the machine after about a second.
//
// The package never changes or reads a linked directory: calls on its files fail with Precondition.
// It knows the owners of codebases only by Options.OwnerOf, and no names or sandboxes; the caller
// decides who may delete a codebase, and when. Errors contain only paths inside the codebase.
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

// ID is the id of a codebase, which is never reused: "cb_" and 16 hexadecimal digits.
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
//	ID/files/      uploaded and synced files: the source of sandboxes
//	ID/staging/    running uploads, and files that are being removed
//	ID/usage.json  the size of files/; exists only while it is exact
//	ID/link.json   instead of files/, for a linked directory of the host
//
// A file is written in staging/ and then moved; after a kill, staging/ is emptied. The size and the
// number of files are updated with each change, also in total for each owner, with running uploads.
// They are counted again only if the process that last changed the codebase died before Close.
type Codebase struct {
	store *Store
	id    ID

	telling sync.Mutex // held while the observer is called

	mu     sync.Mutex // held while files or the fields below change
	loaded bool
	gone   bool
	link   *Link // nil: uploaded
	usage  Usage
	clean  bool // usage.json holds usage

	account *account  // nil until the owner is known
	counted SizeDelta // the part of usage that account includes

	staged uint64
}

// ID returns the codebase's ID.
func (c *Codebase) ID() ID { return c.id }

// Source returns the absolute host path of the source of sandboxes. Errors: NotFound; for a linked
// directory also Precondition if its path now has another directory, and those of Link.
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

// absent is the error for a malformed, an unknown and a deleted ID alike.
func (c *Codebase) absent() error { return noCodebase(c.id) }

func noCodebase(id ID) error {
	return errdefs.WithReason(errdefs.New(errdefs.NotFound, "codebase %s: no such codebase", vpath.Quote(string(id))), errdefs.CodebaseNotFound)
}

// usableLocked refuses calls on the files of a linked or deleted codebase.
func (c *Codebase) usableLocked() error {
	switch {
	case c.gone:
		return c.absent()
	case c.link != nil:
		return errdefs.New(errdefs.Precondition, "codebase %s: linked directory: use the files of its sandboxes, or the directory itself", c.id)
	}
	return nil
}

func (c *Codebase) usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usableLocked()
}

// open opens the subdirectory sub of the codebase's directory.
func (c *Codebase) open(sub string) (int, error) {
	fd, err := safefs.OpenDir(c.store.root(), string(c.id)+"/"+sub, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) {
		return -1, c.absent()
	}
	return fd, wrap("open", vpath.Root, err)
}

// at calls do with a descriptor of files/.
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

// change calls do while no other call changes the codebase, and then calls the observer.
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
