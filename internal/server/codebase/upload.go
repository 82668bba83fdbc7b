package codebase

import (
	"crypto/md5" //nolint:gosec // a checksum for clients, not for security
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

// Default modes of uploads.
const (
	fileMode = 0o644
	dirMode  = 0o755
)

// Upload is a running upload of a file. It is not safe for concurrent use.
type Upload struct {
	codebase *Codebase
	path     vpath.Path
	total    int64 // 0: unknown
	mode     uint32
	name     string   // in staging; "" after it was moved
	file     *os.File // nil: ended
	sum      hash.Hash
	size     int64
	failure  error // the first
	held     *hold
}

// Uploaded describes a stored file.
type Uploaded struct {
	SizeBytes int64
	MD5       string // in hexadecimal digits
}

// Upload begins the upload of the file p. total is the number of bytes; 0: unknown. Only the
// permission bits of mode count, without setuid, setgid and sticky; 0 is 0644; the owner can always
// read. The caller ends the upload with Commit or Abort. Errors: Invalid, NotFound, Exhausted;
// Precondition for a linked codebase.
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

// stage creates the file that receives the upload.
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

// checkTarget refuses paths at which no file can be.
func checkTarget(operation string, p vpath.Path) error {
	switch {
	case p.IsRoot():
		return errdefs.New(errdefs.Invalid, "%s: the path is empty or the root", operation)
	case len(p) >= unix.PathMax:
		return errdefs.New(errdefs.Invalid, "%s: a path of %d bytes is longer than %d", operation, len(p), unix.PathMax-1)
	}
	return nil
}

// modeOr returns the permission bits of mode, or the default for 0.
func modeOr(mode, none uint32) uint32 {
	if mode&0o777 == 0 {
		return none
	}
	return mode & 0o777
}

// stagedName returns an unused name in staging.
func (c *Codebase) stagedName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.staged++
	return strconv.FormatUint(c.staged, 10)
}

// Write appends to the file. Errors: Invalid for more than the total; Exhausted. After an error the
// caller must call Abort.
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
		return errdefs.New(errdefs.Precondition, "upload %s: already ended", u.path)
	}
	return u.failure
}

// Commit moves the file to its path. It replaces an existing file in one step, and creates missing
// parents. Errors: Invalid if bytes are missing, or if the path has a symbolic link; Precondition
// if the path is a directory, or a parent is a file; NotFound if the codebase was deleted
// meanwhile; Exhausted. After an error nothing has changed, and the upload has ended.
func (u *Upload) Commit() (Uploaded, error) {
	defer u.Abort()
	if err := u.usable(); err != nil {
		return Uploaded{}, err
	}
	if u.total > 0 && u.size < u.total {
		return Uploaded{}, errdefs.New(errdefs.Invalid, "upload %s: received %d bytes, %d of total_size are missing", u.path, u.size, u.total-u.size)
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

// finish closes the staged file, which may report a full disk.
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

// Abort ends an upload without a commit; after Commit it does nothing.
func (u *Upload) Abort() {
	if u.file != nil {
		u.file.Close()
		u.file = nil
	}
	defer u.held.release()
	if u.name == "" {
		return
	}
	// A file that stays is removed when the codebase is opened again.
	if staging, err := u.codebase.open(stagingDir); err == nil {
		_ = unix.Unlinkat(staging, u.name, 0)
		unix.Close(staging)
	}
	u.name = ""
}
