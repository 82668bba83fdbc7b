package codebase

import (
	"crypto/md5" //nolint:gosec // what the API's clients compare, no protection
	"encoding/hex"
	"errors"
	"hash"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Modes of what is uploaded without one.
const (
	fileMode = 0o644
	dirMode  = 0o755
)

// Upload is a file on its way into a codebase. It is for one goroutine.
type Upload struct {
	codebase *Codebase
	path     vpath.Path
	total    int64 // 0: not told
	mode     uint32
	name     string   // in staging; "" once it has left it
	file     *os.File // nil: ended
	sum      hash.Hash
	size     int64
	failure  error // the first
	held     *hold
}

// Uploaded is what has been stored.
type Uploaded struct {
	SizeBytes int64
	MD5       string // in hexadecimal digits
}

// Upload begins the upload of the file p. total is how many bytes will come, 0
// if that is not known. Of mode the permission bits count, 0 is 0644; setuid,
// setgid and sticky are dropped and the owner can always read. The caller ends
// it with Commit or Abort. Errors: Invalid, NotFound, Exhausted; Precondition
// for a linked codebase.
func (c *Codebase) Upload(p vpath.Path, total int64, mode uint32) (*Upload, error) {
	if total < 0 {
		return nil, errdefs.New(errdefs.Invalid, "upload %s: total_size is negative", p)
	}
	if err := checkTarget("upload", p); err != nil {
		return nil, err
	}
	if err := c.store.limits.allowFile(p, total); err != nil {
		return nil, err
	}
	if err := c.usable(); err != nil {
		return nil, err
	}
	h, err := c.hold(p, SizeDelta{FileCount: 1, SizeBytes: total})
	if err != nil {
		return nil, err
	}
	u := &Upload{
		codebase: c, path: p, total: total, mode: modeOr(mode, fileMode) | 0o400,
		name: c.stagedName(), sum: md5.New(), held: h, //nolint:gosec // as above
	}
	if err = h.begin(p); err == nil {
		err = u.stage()
	}
	if err != nil {
		h.release()
		return nil, err
	}
	return u, nil
}

// stage makes the file that the upload is received in.
func (u *Upload) stage() error {
	staging, err := u.codebase.open(stagingDir)
	if err != nil {
		return err
	}
	defer unix.Close(staging)
	fd, err := safefs.Open(staging, u.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return wrap("upload", u.path, err)
	}
	u.file = os.NewFile(uintptr(fd), u.path.String())
	return nil
}

// checkTarget refuses paths at which nothing can be put.
func checkTarget(operation string, p vpath.Path) error {
	switch {
	case p.IsRoot():
		return errdefs.New(errdefs.Invalid, "%s: the path is empty or the root", operation)
	case len(p) >= unix.PathMax:
		return errdefs.New(errdefs.Invalid, "%s: a path of %d bytes is longer than %d", operation, len(p), unix.PathMax-1)
	}
	return nil
}

// modeOr returns the permission bits of mode, or what stands for none.
func modeOr(mode, none uint32) uint32 {
	if mode&0o777 == 0 {
		return none
	}
	return mode & 0o777
}

// stagedName returns a name that is free in staging.
func (c *Codebase) stagedName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.staged++
	return strconv.FormatUint(c.staged, 10)
}

// Write adds to the file. Errors: Invalid for more than the total; Exhausted.
// After an error only Abort is of use.
func (u *Upload) Write(b []byte) (int, error) {
	if err := u.usable(); err != nil {
		return 0, err
	}
	size := u.size + int64(len(b))
	if u.total > 0 && size > u.total {
		u.failure = errdefs.New(errdefs.Invalid, "upload %s: more than the %d bytes of total_size", u.path, u.total)
	} else {
		u.failure = u.codebase.store.limits.allowFile(u.path, size)
	}
	if more := size - u.held.size.SizeBytes; u.failure == nil && more > 0 {
		u.failure = u.held.grow(u.path, SizeDelta{SizeBytes: more})
	}
	if u.failure != nil {
		return 0, u.failure
	}
	n, err := u.file.Write(b)
	u.sum.Write(b[:n])
	u.size += int64(n)
	u.failure = wrap("upload", u.path, err)
	return n, u.failure
}

func (u *Upload) usable() error {
	if u.failure == nil && u.file == nil {
		return errdefs.New(errdefs.Precondition, "upload %s: it has ended", u.path)
	}
	return u.failure
}

// Commit gives the file its place. What stood there is replaced in one step,
// and directories on the way are made. Errors: Invalid if bytes are missing, or
// if a symbolic link stands there or on the way; Precondition for a directory
// there or a file on the way; NotFound if the codebase was deleted meanwhile;
// Exhausted. After an error nothing has changed, and the upload is over.
func (u *Upload) Commit() (Uploaded, error) {
	defer u.Abort()
	if err := u.usable(); err != nil {
		return Uploaded{}, err
	}
	if u.total > 0 && u.size < u.total {
		return Uploaded{}, errdefs.New(errdefs.Invalid, "upload %s: %d bytes came, %d of total_size are missing", u.path, u.size, u.total-u.size)
	}
	err := u.finish()
	failpoint.At("upload: received")
	if err == nil {
		err = u.codebase.change(func(d dirs) error { return u.place(d) })
	}
	if err != nil {
		return Uploaded{}, wrapWrite("upload", u.path, err)
	}
	return Uploaded{SizeBytes: u.size, MD5: hex.EncodeToString(u.sum.Sum(nil))}, nil
}

// finish closes the staged file, which may tell that the disk is full.
func (u *Upload) finish() error {
	err := errors.Join(u.file.Chmod(os.FileMode(u.mode)), u.file.Close())
	u.file = nil
	return err
}

func (u *Upload) place(d dirs) error {
	err := d.put(u.name, u.path, SizeDelta{FileCount: 1, SizeBytes: u.size}, u.held, replaceFile)
	if err == nil {
		u.name = ""
	}
	return err
}

// Abort ends an upload that has not been committed, and does nothing else.
func (u *Upload) Abort() {
	if u.file != nil {
		u.file.Close()
		u.file = nil
	}
	defer u.held.release()
	if u.name == "" {
		return
	}
	// A name that stays is swept when the codebase is next opened.
	if staging, err := u.codebase.open(stagingDir); err == nil {
		_ = unix.Unlinkat(staging, u.name, 0)
		unix.Close(staging)
	}
	u.name = ""
}
