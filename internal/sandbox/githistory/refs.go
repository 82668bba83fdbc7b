package githistory

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// The digits of an object's id.
const (
	sha1Digits   = 40
	sha256Digits = 64
)

// What is read of the refs at most.
const (
	refBytes    = 4 << 10
	packedBytes = 16 << 20
	maxRefs     = 50_000
	maxDepth    = 16 // of directories below refs
)

// Refs are the refs of a repository: the object of each name.
type Refs map[string]string

// Tips are the objects that the refs name, each once, in order.
func (r Refs) Tips() []string {
	var tips []string
	for _, id := range r {
		tips = append(tips, id)
	}
	slices.Sort(tips)
	return slices.Compact(tips)
}

// ReadRefs reads the refs of the repository whose git directory is open as dir,
// with the commit that is checked out as HEAD. Errors: Unsupported where they are kept in another
// form or place, or are too many; Invalid where they are malformed; else of the kind of the host's
// error.
func ReadRefs(dir int) (Refs, error) {
	for name, why := range map[string]string{"reftable": "the refs are a reftable", "commondir": "the objects are in another directory"} {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
			return nil, errdefs.New(errdefs.Unsupported, "git: %s", why)
		}
	}
	refs, err := ReadPacked(dir)
	if err != nil {
		return nil, err
	}
	loose := looseRefs{refs, dir, maxRefs}
	if err := loose.read("refs", 0); err != nil {
		return nil, err
	}
	ref, id, err := ReadHead(dir)
	if err != nil {
		return nil, err
	}
	if id == "" {
		id = refs[ref]
	}
	if id != "" {
		refs["HEAD"] = id
	}
	return refs, nil
}

// ReadLoose reads those of the refs that have a file. Errors: as ReadRefs.
func ReadLoose(dir int) (Refs, error) {
	refs := Refs{}
	loose := looseRefs{refs, dir, maxRefs}
	return refs, loose.read("refs", 0)
}

// ReadHead reads HEAD: the ref that is checked out, or the commit; both are
// empty if there is none.
func ReadHead(dir int) (ref, id string, err error) {
	text, err := readFile(dir, "HEAD", refBytes)
	ref, id = ParseRef(text)
	return ref, id, err
}

// ParseRef reads the content of a loose ref: the object that it names, or the
// ref. Both are empty if it is malformed.
func ParseRef(text []byte) (ref, id string) {
	s := strings.TrimSpace(string(text))
	if name, ok := strings.CutPrefix(s, "ref:"); ok {
		return strings.TrimSpace(name), ""
	}
	if isObjectID(s) {
		return "", s
	}
	return "", ""
}

// ReadShallow returns the commits at which a shallow history ends.
func ReadShallow(dir int) ([]string, error) {
	text, err := readFile(dir, "shallow", packedBytes)
	if err != nil {
		return nil, err
	}
	return ParseShallow(text), nil
}

// ParseShallow reads the content of a file "shallow".
func ParseShallow(text []byte) []string {
	return slices.DeleteFunc(strings.Fields(string(text)), func(s string) bool { return !isObjectID(s) })
}

// readFile reads a regular file beneath dir; one that is absent is empty.
func readFile(dir int, name string, most int64) ([]byte, error) {
	text, err := safefs.ReadRegular(dir, name, most)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errdefs.Is(err, errdefs.NotFound) {
		return nil, nil
	}
	return text, err
}

// ReadPacked reads those of the refs that are packed, which count where there is
// no file of the name. Errors: as ReadRefs.
func ReadPacked(dir int) (Refs, error) {
	text, err := readFile(dir, "packed-refs", packedBytes)
	if err != nil {
		return nil, err
	}
	refs := Refs{}
	refs.AddPacked(text)
	if len(refs) > maxRefs {
		return nil, tooMany()
	}
	return refs, nil
}

// AddPacked adds what the file packed-refs with this text says.
func (r Refs) AddPacked(text []byte) {
	for line := range strings.Lines(string(text)) {
		id, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if ok && isObjectID(id) && len(r) <= maxRefs {
			r[name] = id
		}
	}
}

// looseRefs reads the directory of refs.
type looseRefs struct {
	refs Refs
	dir  int
	left int // entries that may still be looked at
}

func (l *looseRefs) read(at string, depth int) error {
	if depth > maxDepth {
		return errdefs.New(errdefs.Unsupported, "git: refs are nested deeper than %d directories", maxDepth)
	}
	fd, err := safefs.OpenDir(l.dir, at, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return errdefs.New(safefs.Kind(err), "git: %w", err)
	}
	f := os.NewFile(uintptr(fd), at)
	defer f.Close()
	entries, err := f.ReadDir(l.left + 1)
	if l.left -= len(entries); l.left < 0 {
		return tooMany()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return errdefs.New(safefs.Kind(err), "git: %w", err)
	}
	for _, e := range entries {
		name := path.Join(at, e.Name())
		if e.IsDir() {
			err = l.read(name, depth+1)
		} else {
			err = l.readOne(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *looseRefs) readOne(name string) error {
	text, err := readFile(l.dir, name, refBytes)
	if err != nil {
		return err
	}
	if _, id := ParseRef(text); id != "" {
		l.refs[name] = id
	}
	return nil
}

func tooMany() error { return errdefs.New(errdefs.Unsupported, "git: more than %d refs", maxRefs) }

// isObjectID reports whether s is the id of an object, in full.
func isObjectID(s string) bool {
	return (len(s) == sha1Digits || len(s) == sha256Digits) && strings.Trim(s, "0123456789abcdef") == ""
}
