// Package secretscan looks for secrets in a directory: by the names of its files
// (secretname.All) and by their content. The content is a key, a token of a known
// form, or a random value of a variable with a name that stands for a secret.
//
// It reads beneath the directory only. It follows no link, and reads regular files only,
// each up to MaxFileBytes. A finding says where a secret is, never what it is. The scan
// does not find every secret and may report values that are not secret; it reports less in
// lock files, minified code and test data.
package secretscan

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// The bounds of a scan.
const (
	MaxFileBytes = 256 << 10 // of each file; the scan ignores the rest
	MaxFiles     = 200_000
)

// Kind is the way in which a secret was recognised.
type Kind string

// The kinds.
const (
	Name       Kind = "name"        // the file has a name of the list
	PrivateKey Kind = "private-key" // its content is a private key
	Token      Kind = "token"       // it holds a token of a known shape
	Entropy    Kind = "entropy"     // it holds a random value under a telling name
)

// Finding is a file that probably holds a secret.
type Finding struct {
	Path   vpath.Path
	Line   int // from 1; 0 for a name
	Kind   Kind
	Reason string // for people, without the secret
}

// Result is what a scan found, by path.
type Result struct {
	Findings []Finding
	Files    int  // scanned files
	Partial  bool // the directory has more than MaxFiles
}

// Scan scans everything below the directory dir. It skips what it cannot read. Errors:
// NotFound, Denied for dir itself; Canceled.
func Scan(ctx context.Context, dir string) (Result, error) {
	root, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Result{}, errdefs.New(safefs.Kind(err), "scan %s: %w", vpath.Escape(dir), err)
	}
	defer unix.Close(root)
	names, err := namesPolicy()
	if err != nil {
		return Result{}, err
	}
	s := scanner{ctx: ctx, root: root, names: names, buffer: make([]byte, MaxFileBytes)}
	err = s.directory(".", vpath.Root, names.policy.At(vpath.Root), false)
	if errors.Is(err, errEnough) {
		s.result.Partial, err = true, nil
	}
	slices.SortFunc(s.result.Findings, func(a, b Finding) int { return strings.Compare(string(a.Path), string(b.Path)) })
	return s.result, err
}

var errEnough = errors.New("enough files")

// nameRules decides which names are on the list, and gives their kinds.
type nameRules struct {
	policy *policy.Policy
	kinds  []string // of each rule
}

func namesPolicy() (nameRules, error) {
	rules := []policy.Rule{{Pattern: "**", Permission: policy.Read}}
	kinds := []string{""}
	for _, s := range secretname.All() {
		rules = append(rules, policy.Rule{Pattern: s.Pattern, Permission: policy.None, Type: policy.Glob, Priority: 1})
		kinds = append(kinds, s.Kind)
	}
	p, err := policy.Compile(rules, policy.Options{})
	return nameRules{p, kinds}, err
}

type scanner struct {
	ctx    context.Context
	root   int
	names  nameRules
	buffer []byte
	result Result
}

// skippedDirs contain the work of others: packages and git's objects.
var skippedDirs = []string{".git", ".hg", ".svn", "node_modules", "site-packages", "__pycache__", ".tox", ".mypy_cache"}

// sampleDirs hold test data.
var sampleDirs = []string{"testdata", "test", "tests", "__tests__", "fixtures", "fixture", "spec", "mocks", "examples", "docs"}

// directory scans the directory rel. at is the evaluation of names in it. sample says that
// it is in test data.
func (s *scanner) directory(rel string, dir vpath.Path, at policy.State, sample bool) error {
	fd, err := safefs.Open(s.root, rel, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		return nil //nolint:nilerr // an unreadable directory must not hide the rest
	}
	f := os.NewFile(uintptr(fd), rel)
	entries, _ := f.ReadDir(-1) // the entries read before an error count
	f.Close()
	for _, entry := range entries {
		if err := s.ctx.Err(); err != nil {
			return errdefs.New(errdefs.Canceled, "scan: %w", err)
		}
		if err := s.entry(rel, dir, at, entry, sample); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) entry(rel string, dir vpath.Path, at policy.State, entry fs.DirEntry, sample bool) error {
	name := entry.Name()
	p := dir.Child(name)
	d := at.DecideChild(name)
	switch {
	case entry.IsDir() && d.Permission == policy.None:
		s.found(Finding{Path: p, Kind: Name, Reason: s.reason(d)})
	case entry.IsDir() && !slices.Contains(skippedDirs, name):
		return s.directory(path.Join(rel, name), p, at.Child(name), sample || slices.Contains(sampleDirs, name))
	case !entry.Type().IsRegular():
	default:
		if s.result.Files++; s.result.Files > MaxFiles {
			return errEnough
		}
		if d.Permission == policy.None {
			s.found(Finding{Path: p, Kind: Name, Reason: s.reason(d)})
			return nil
		}
		s.content(path.Join(rel, name), p, sample)
	}
	return nil
}

func (s *scanner) found(f Finding) { s.result.Findings = append(s.result.Findings, f) }

func (s *scanner) reason(d policy.Decision) string {
	if d.Rule == policy.NoRule {
		return "a name for secrets"
	}
	return "a name for secrets: " + s.names.kinds[d.Rule]
}

// content scans a file.
func (s *scanner) content(rel string, p vpath.Path, sample bool) {
	name := strings.ToLower(p.Base())
	if isLock(name) {
		return
	}
	f, err := safefs.OpenRegular(s.root, rel)
	if err != nil {
		return
	}
	defer f.Close()
	n, err := io.ReadFull(f, s.buffer)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return
	}
	text := s.buffer[:n]
	if bytes.IndexByte(text[:min(n, 8000)], 0) >= 0 {
		return // binary, by git's test
	}
	sample = sample || strings.Contains(name, "_test.") || strings.Contains(name, ".test.") || strings.Contains(name, ".spec.") || strings.HasPrefix(name, "test_")
	if found, ok := findContent(text, !isMinified(name, text), sample); ok {
		found.Path = p
		s.found(found)
	}
}

// locks are files that package managers write. They contain many digests.
var locks = []string{"package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "go.sum", "bun.lockb", "packages.lock.json"}

func isLock(name string) bool {
	return strings.HasSuffix(name, ".lock") || slices.Contains(locks, name)
}

// isMinified reports whether the text is minified or generated.
func isMinified(name string, text []byte) bool {
	for _, end := range []string{".min.js", ".min.css", ".map", ".svg", ".ipynb", ".csv"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	const longLine = 2000
	return len(text) > longLine && bytes.IndexByte(text[:longLine], '\n') < 0
}
