package cleangit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Cache is a directory of the state directory with the repositories that were made last, each in a
// directory named by a hash of what it depends on. A directory appears whole, by a rename.
type Cache string

// CacheIn returns the cache in the state directory home.
func CacheIn(home string) Cache { return Cache(filepath.Join(home, "clean-git")) }

// What the cache keeps at most.
const (
	maxCached      = 16
	maxCachedBytes = 2 << 30
)

// makingPrefix begins the name of a directory that is being made, for at most makingTimeout.
const (
	makingPrefix  = "making-"
	makingTimeout = 2 * buildTimeout
)

// Made is a repository for new sandboxes.
type Made struct {
	Info Info

	cache    Cache
	key      string
	excluded string
	skipped  map[string]bool
}

// Make makes the repository of the directory workspace under a policy, or finds it in the cache.
// Errors: Precondition or Unsupported with the reason if there can be none; Invalid; Deadline;
// Canceled.
func (c Cache) Make(ctx context.Context, workspace *os.File, mode Mode, p *policy.Policy) (*Made, error) {
	return c.MakeFor(ctx, "", workspace, mode, p)
}

// MakeFor is Make that finds only what was made for the same user. Whoever has the id of a commit
// could otherwise make a repository whose head is that id, and get the objects of another user.
func (c Cache) MakeFor(ctx context.Context, user string, workspace *os.File, mode Mode, p *policy.Policy) (*Made, error) {
	s, err := OpenSource(workspace)
	if err != nil {
		return nil, refused("%w", err)
	}
	defer s.Close()
	m := &Made{cache: c, key: s.key(user, mode, p)}
	if err := m.readIndex(s, p); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(c), 0o700); err != nil {
		return nil, hostError(err)
	}
	if _, err := os.Stat(m.dir()); err != nil {
		if err := c.build(ctx, s, mode, p, m.dir()); err != nil {
			return nil, err
		}
	}
	text, err := safefs.ReadRegularIn(m.dir(), infoFile, 1<<16)
	if err == nil {
		err = json.Unmarshal(text, &m.Info)
	}
	if err != nil {
		return nil, hostError(err)
	}
	now := time.Now()
	return m, hostError(os.Chtimes(m.dir(), now, now))
}

func (m *Made) dir() string { return filepath.Join(string(m.cache), m.key) }

// key stands for all that the repository depends on.
func (s *Source) key(user string, mode Mode, p *policy.Policy) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q\n", user)
	fmt.Fprintln(h, version, mode, s.Head, s.branch, s.Shallow)
	for _, r := range p.Rules() {
		fmt.Fprintf(h, "%q %d %d %d %d %s\n", r.Pattern, r.Type, r.Permission, r.Priority, r.Origin, r.Transform)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (c Cache) build(ctx context.Context, s *Source, mode Mode, p *policy.Policy, to string) error {
	making, err := os.MkdirTemp(string(c), makingPrefix)
	if err != nil {
		return hostError(err)
	}
	err = build(ctx, s, mode, p, making)
	if err == nil {
		err = c.locked(unix.LOCK_EX, func() error {
			if err := os.Rename(making, to); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
				return hostError(err)
			}
			return hostError(errors.Join(safefs.SyncDir(string(c)), c.evict(filepath.Base(to))))
		})
	}
	return errors.Join(err, hostError(os.RemoveAll(making)))
}

// locked calls do while no other process adds to the cache, and with LOCK_EX none uses it.
func (c Cache) locked(how int, do func() error) error {
	dir, err := os.Open(string(c))
	if err != nil {
		return hostError(err)
	}
	defer dir.Close()
	err = unix.Flock(int(dir.Fd()), how)
	for errors.Is(err, unix.EINTR) {
		err = unix.Flock(int(dir.Fd()), how)
	}
	if err != nil {
		return hostError(err)
	}
	return do()
}

// evict removes what was used least recently, but never the entry kept, and what a killed process
// was making. The cache is locked.
func (c Cache) evict(kept string) error {
	entries, err := os.ReadDir(string(c))
	if err != nil {
		return err
	}
	type cached struct {
		name  string
		used  time.Time
		bytes int64
	}
	var all []cached
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil:
			return err
		case !strings.HasPrefix(e.Name(), makingPrefix):
			all = append(all, cached{e.Name(), info.ModTime(), c.size(e.Name())})
		case time.Since(info.ModTime()) > makingTimeout:
			if err := os.RemoveAll(filepath.Join(string(c), e.Name())); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(all, func(x, y cached) int { return y.used.Compare(x.used) })
	total := int64(0)
	for i, e := range all {
		if total += e.bytes; e.name != kept && (i >= maxCached || total > maxCachedBytes) {
			if err := os.RemoveAll(filepath.Join(string(c), e.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Cache) size(name string) int64 {
	var total int64
	for _, file := range []string{packFile, packIndex, indexFile, commitsFile, pathsFile} {
		if info, err := os.Lstat(filepath.Join(string(c), name, file)); err == nil {
			total += info.Size()
		}
	}
	return total
}

// Fill makes the store of a new sandbox with the directory dir.
func (m *Made) Fill(dir string) error {
	return m.cache.locked(unix.LOCK_SH, func() error {
		if _, err := os.Stat(m.dir()); err != nil {
			return errdefs.New(errdefs.Unavailable, "the clean repository was removed from the cache; try again")
		}
		return StoreIn(dir).fill(m)
	})
}

// readIndex reads what the sandbox's index and excludes need of the source's.
func (m *Made) readIndex(s *Source, p *policy.Policy) error {
	m.skipped = map[string]bool{}
	excluded, err := readExcluded(s, p)
	if err != nil {
		return err
	}
	content, err := safefs.ReadRegular(int(s.dir.Fd()), "index", gitindex.MaxBytes)
	if isAbsent(err) {
		m.excluded = excluded
		return nil
	}
	if err != nil {
		return refused("index: %w", err)
	}
	x, err := gitindex.Parse(content)
	if err != nil {
		return refused("index: %w", err)
	}
	var list strings.Builder
	list.WriteString(excluded)
	x.Entries(func(e gitindex.Entry) {
		path, ok := gitindex.TrackedPath(vpath.Root, e.Path)
		switch {
		case !ok:
		case p.ShowsContent(path): // it may not be checked out
			m.skipped[e.Path] = e.SkipWorktree
		case p.Decide(path).Permission != policy.None && !strings.Contains(e.Path, "\n"):
			// Git would report it as new: it is listed, and in no commit.
			list.WriteString("/" + excludeEscape.Replace(e.Path) + "\n")
		}
	})
	m.excluded = list.String()
	return nil
}

// maxExcluded bounds the source's excludes, in bytes.
const maxExcluded = 1 << 20

// readExcluded returns the source's excludes if the policy shows them, without comments and
// patterns that name what it hides.
func readExcluded(s *Source, p *policy.Policy) (string, error) {
	if !p.ShowsContent(At + "/info/exclude") {
		return "", nil
	}
	text, err := safefs.ReadRegular(int(s.dir.Fd()), "info/exclude", maxExcluded)
	if isAbsent(err) {
		return "", nil
	}
	if err != nil {
		return "", refused("info/exclude: %w", err)
	}
	var list strings.Builder
	for line := range strings.SplitSeq(string(text), "\n") {
		name := strings.Trim(strings.TrimPrefix(line, "!"), "/ \t\r")
		path, ok := gitindex.TrackedPath(vpath.Root, name)
		if ok && !strings.HasPrefix(line, "#") && p.Decide(path).Permission != policy.None {
			list.WriteString(line + "\n")
		}
	}
	return list.String(), nil
}

// excludeEscape writes a path as a pattern (gitignore(5)).
var excludeEscape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `)

func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errdefs.Is(err, errdefs.NotFound)
}

// index returns the index of the repository, in which the same entries as in the source's are not
// checked out.
func (m *Made) index() ([]byte, error) {
	text, err := safefs.ReadRegularIn(m.dir(), indexFile, gitindex.MaxBytes)
	if err != nil {
		return nil, err
	}
	x, err := gitindex.Parse(text)
	if err != nil {
		return nil, err
	}
	if !x.Skip(func(e gitindex.Entry) bool { return m.skipped[e.Path] }) {
		return text, nil
	}
	return x.Encode(), nil
}
