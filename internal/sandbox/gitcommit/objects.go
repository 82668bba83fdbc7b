package gitcommit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // git's object ids
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// maxObject is how large a commit or a tree may be, in bytes.
const maxObject = 64 << 20

// IsID reports whether s is the full id of an object.
func IsID(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && (len(s) == 2*sha1.Size || len(s) == 2*sha256.Size) && strings.ToLower(s) == s
}

// ModeOf returns the mode that git gives a file or link of the host, and "" for another type.
func ModeOf(mode uint32) string {
	switch {
	case mode&unix.S_IFMT == unix.S_IFLNK:
		return Link
	case mode&unix.S_IFMT != unix.S_IFREG:
		return ""
	case mode&unix.S_IXUSR != 0:
		return Executable
	}
	return Regular
}

// Resolve returns the id of the commit that a revision names. Errors: NotFound.
func (r *Repository) Resolve(ctx context.Context, revision string) (string, error) {
	out, err := r.run(ctx, inRepository, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if errors.Is(err, errNo) {
		return "", errdefs.New(errdefs.NotFound, "the repository has no commit %s: fetch it first", vpath.Quote(revision))
	}
	return strings.TrimSpace(out), err
}

// Objects reads objects of a repository. It does not trust git or the repository to give what an
// id names: it computes each id from the content. It is of no use after an error.
type Objects struct {
	cmd       *exec.Cmd
	cancel    context.CancelFunc
	in        io.Writer
	out       *bufio.Reader
	complaint bytes.Buffer
}

// Objects starts to read objects. Close the result.
func (r *Repository) Objects(ctx context.Context) (*Objects, error) {
	return r.objectsIn(ctx, inRepository)
}

// ObjectsAside is Objects, with those of StoreAside.
func (r *Repository) ObjectsAside(ctx context.Context) (*Objects, error) {
	return r.objectsIn(ctx, inScratch)
}

func (r *Repository) objectsIn(ctx context.Context, w where) (*Objects, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &Objects{cmd: r.command(ctx, w, "cat-file", "--batch"), cancel: cancel}
	o.cmd.Stderr = &o.complaint
	in, err := o.cmd.StdinPipe()
	if err == nil {
		var out io.Reader
		out, err = o.cmd.StdoutPipe()
		o.in, o.out = in, bufio.NewReader(out)
	}
	if err == nil {
		err = o.cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, hostError(err)
	}
	return o, nil
}

// Close ends the reading.
func (o *Objects) Close() {
	o.cancel()
	_ = o.cmd.Wait() // it was stopped
}

// read writes the content of an object to w. Errors: Invalid if the object is of another kind or
// does not have this id; NotFound.
func (o *Objects) read(id, kind string, most int64, w io.Writer) error {
	if !IsID(id) {
		return errdefs.New(errdefs.Invalid, "%s is not the id of an object", vpath.Quote(id))
	}
	_, err := io.WriteString(o.in, id+"\n")
	line := ""
	if err == nil {
		line, err = o.out.ReadString('\n')
	}
	if err != nil {
		return o.ended(id, err)
	}
	field := strings.Fields(line)
	switch {
	case len(field) == 2 && field[1] == "missing":
		return errdefs.New(errdefs.NotFound, "the repository does not have the object %s: fetch it first", id)
	case len(field) != 3 || field[0] != id || field[1] != kind:
		return errdefs.New(errdefs.Invalid, "the object %s is not a %s", id, kind)
	}
	size, err := strconv.ParseInt(field[2], 10, 64)
	if err != nil || size < 0 || size > most {
		return errdefs.New(errdefs.Invalid, "the %s %s is too large: %s bytes", kind, id, field[2])
	}
	h := newHash(len(id))
	fmt.Fprintf(h, "%s %d\x00", kind, size)
	_, err = io.CopyN(io.MultiWriter(h, w), o.out, size)
	if err == nil {
		_, err = o.out.Discard(1)
	}
	if err != nil {
		return o.ended(id, err)
	}
	if hex.EncodeToString(h.Sum(nil)) != id {
		return errdefs.New(errdefs.Invalid, "the %s %s is damaged: its content has another id", kind, id)
	}
	return nil
}

// ended says why git stopped before it gave the object.
func (o *Objects) ended(id string, err error) error {
	o.Close()
	line, _, _ := strings.Cut(strings.TrimSpace(o.complaint.String()), "\n")
	if line == "" {
		return errdefs.New(errdefs.Internal, "git cat-file: object %s: %w", id, err)
	}
	return errdefs.New(errdefs.Invalid, "git cat-file: object %s: %s", id, vpath.Escape(line))
}

// newHash is the hash of ids with so many digits.
func newHash(digits int) hash.Hash {
	if digits == 2*sha256.Size {
		return sha256.New()
	}
	return sha1.New() //nolint:gosec // git's object ids
}

// Sum returns the SHA-256 of the content of a blob, in hex. Errors: as read.
func (o *Objects) Sum(id string) (string, error) {
	h := sha256.New()
	err := o.read(id, "blob", 1<<62, h)
	return hex.EncodeToString(h.Sum(nil)), err
}

// Blob writes the content of a blob to w. Errors: as read.
func (o *Objects) Blob(id string, w io.Writer) error { return o.read(id, "blob", 1<<62, w) }

// BlobID returns the id, of so many digits, that a blob with the content of r, of size bytes, has.
// Errors: those of r; Precondition if r has another size.
func BlobID(digits int, size int64, r io.Reader) (string, error) {
	h := newHash(digits)
	fmt.Fprintf(h, "blob %d\x00", size)
	n, err := io.Copy(h, io.LimitReader(r, size+1))
	if err == nil && n != size {
		err = errdefs.New(errdefs.Precondition, "it has changed while it was read")
	}
	return hex.EncodeToString(h.Sum(nil)), err
}
