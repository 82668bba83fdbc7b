package transplant

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1" //nolint:gosec // git's object ids
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun"
)

// What is taken of a sandbox's objects at most: loose ones, bytes of one and of all when they are
// unpacked, and packs with their bytes.
const (
	maxLoose       = 1_000_000
	maxObject      = 1 << 30
	maxObjects     = 4 << 30
	maxPacks       = 1000
	maxPackedBytes = 4 << 30
)

// objectTypes are the types of objects in a pack (gitformat-pack(5)).
var objectTypes = map[string]byte{"commit": 1, "tree": 2, "blob": 3, "tag": 4}

// loosePack makes a pack of loose objects. Damaged ones are left out: if a commit needs one, git
// says that it is missing.
type loosePack struct {
	digits int
	body   *os.File // the entries, without a name
	count  uint32
	bytes  int64
	z      *zlib.Writer
}

func newLoosePack(digits int) (*loosePack, error) {
	body, err := os.CreateTemp("", "agentfense-objects-")
	if err != nil {
		return nil, hostError(err)
	}
	if err := os.Remove(body.Name()); err != nil {
		return nil, hostError(errors.Join(err, body.Close()))
	}
	z, err := zlib.NewWriterLevel(body, zlib.BestSpeed)
	return &loosePack{digits: digits, body: body, z: z}, hostError(err)
}

func (p *loosePack) close() { p.body.Close() }

// addAll adds the objects of a directory of objects. Errors: Exhausted for too many or too large
// ones.
func (p *loosePack) addAll(ctx context.Context, objects *os.File) error {
	for i := range 256 {
		prefix := hex.EncodeToString([]byte{byte(i)})
		dir, err := cleangit.OpenBelow(objects, prefix)
		if errors.Is(err, unix.EACCES) {
			return cleangit.Unreadable(path.Join("objects", prefix), err)
		}
		if err != nil {
			continue // no directory, so no objects
		}
		err = p.addDir(ctx, dir, prefix)
		dir.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *loosePack) addDir(ctx context.Context, dir *os.File, prefix string) error {
	names, err := dir.Readdirnames(maxLoose)
	if err != nil && !errors.Is(err, io.EOF) {
		return cleangit.Unreadable(path.Join("objects", prefix), err)
	}
	for _, name := range names {
		id := prefix + name
		if len(id) != p.digits || strings.Trim(id, "0123456789abcdef") != "" {
			continue
		}
		if ctx.Err() != nil {
			return errdefs.New(errdefs.Canceled, "take objects: %w", ctx.Err())
		}
		if err := p.add(dir, name, id); err != nil {
			return err
		}
		if p.count > maxLoose || p.bytes > maxObjects {
			return errdefs.New(errdefs.Exhausted, "the sandbox's repository has more than %d objects, or 4 GiB of them; run git gc in the sandbox", maxLoose)
		}
	}
	return nil
}

// errBadObject says that a file is no loose object, or not the one of its name.
var errBadObject = errors.New("damaged object")

// add adds a loose object (gitformat-loose(5)), unless it is damaged.
func (p *loosePack) add(dir *os.File, name, id string) error {
	f, err := safefs.OpenRegular(int(dir.Fd()), name)
	if errors.Is(err, unix.EACCES) {
		return cleangit.Unreadable("object "+id, err)
	}
	if err != nil {
		return nil //nolint:nilerr // no file, so no object
	}
	defer f.Close()
	begin, err := p.body.Seek(0, io.SeekCurrent)
	if err != nil {
		return hostError(err)
	}
	size, err := p.copy(f, id)
	if errors.Is(err, errBadObject) {
		_, err = p.body.Seek(begin, io.SeekStart)
		return hostError(errors.Join(err, p.body.Truncate(begin)))
	}
	if err != nil {
		return err
	}
	p.count++
	p.bytes += size
	return nil
}

// copy writes the object as an entry of a pack. Errors: errBadObject; Exhausted.
func (p *loosePack) copy(f io.Reader, id string) (int64, error) {
	z, err := zlib.NewReader(bufio.NewReader(f))
	if err != nil {
		return 0, errBadObject
	}
	r := bufio.NewReader(z)
	header, err := r.ReadSlice(0)
	if err != nil || len(header) > 32 {
		return 0, errBadObject
	}
	sum := newHash(p.digits)
	sum.Write(header)
	word, text, _ := strings.Cut(string(header[:len(header)-1]), " ")
	size, err := strconv.ParseInt(text, 10, 64)
	kind := objectTypes[word]
	switch {
	case err != nil || size < 0 || kind == 0:
		return 0, errBadObject
	case size > maxObject:
		return 0, errdefs.New(errdefs.Exhausted, "the object %s of the sandbox's repository has %d bytes, more than 1 GiB: leave it out of the commits", id, size)
	}
	if _, err := p.body.Write(entryHeader(kind, size)); err != nil {
		return 0, hostError(err)
	}
	p.z.Reset(p.body)
	out := &errWriter{to: io.MultiWriter(p.z, sum)}
	n, err := io.Copy(out, io.LimitReader(r, size+1))
	if out.err != nil {
		return 0, hostError(out.err)
	}
	if err != nil || n != size || hex.EncodeToString(sum.Sum(nil)) != id {
		return 0, errBadObject
	}
	return size, hostError(p.z.Close())
}

// errWriter keeps the error of writing apart from that of reading.
type errWriter struct {
	to  io.Writer
	err error
}

func (w *errWriter) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	w.err = err
	return n, err
}

// entryHeader is the type and the size of an entry: 4 bits, then 7 bits a byte.
func entryHeader(kind byte, size int64) []byte {
	first := kind<<4 | byte(size&15)
	size >>= 4
	header := []byte{first}
	for size > 0 {
		header[len(header)-1] |= 0x80
		header = append(header, byte(size&0x7f))
		size >>= 7
	}
	return header
}

// reader returns the pack: a header, the entries, and the hash of both.
func (p *loosePack) reader() (io.Reader, error) {
	header := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), p.count)
	sum := newHash(p.digits)
	sum.Write(header)
	if _, err := p.body.Seek(0, io.SeekStart); err != nil {
		return nil, hostError(err)
	}
	if _, err := io.Copy(sum, p.body); err != nil {
		return nil, hostError(err)
	}
	if _, err := p.body.Seek(0, io.SeekStart); err != nil {
		return nil, hostError(err)
	}
	return io.MultiReader(bytes.NewReader(header), p.body, bytes.NewReader(sum.Sum(nil))), nil
}

func newHash(digits int) hash.Hash {
	if digits == gitrun.SHA256Digits {
		return sha256.New()
	}
	return sha1.New() //nolint:gosec // git's object ids
}
