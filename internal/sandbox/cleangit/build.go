package cleangit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// buildTimeout bounds how long a repository is made.
const buildTimeout = 10 * time.Minute

type pathOf = vpath.Path

// The files of what was made, in one directory.
const (
	packFile    = "pack"
	packIndex   = "pack.idx"
	indexFile   = "index"
	commitsFile = "commits" // "CLEAN REAL", one commit a line
	pathsFile   = "paths"   // those that the history shows, each with a NUL at its end
	infoFile    = "info.json"
)

// Info describes a clean repository.
type Info struct {
	Version int    `json:"version"`
	Mode    Mode   `json:"mode"`
	Branch  string `json:"branch,omitempty"` // the ref that is checked out, if one is
	Head    string `json:"head"`             // the commit
	Source  string `json:"source"`           // the source's commit of which it was made
	Pack    string `json:"pack"`             // the name of the pack, without an ending
	Commits int    `json:"commits"`
	Hides   bool   `json:"hides"` // paths were left out
	Links   bool   `json:"links"` // the head has submodules
}

// build makes the repository of a source in the directory dir. Errors: Precondition with the reason
// if there can be none; Deadline; Canceled; Unsupported without a git.
func build(ctx context.Context, s *source, mode Mode, p *policy.Policy, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	if err := checkAlternates(s); err != nil {
		return err
	}
	g, err := newGit(s.credential())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := errors.Join(g.makeRepository("work", s.head, s.files(), s.objects), g.makeRepository("clean", s.head, nil), g.give()); err != nil {
		return err
	}
	return explainBuild(g.build(ctx, s, mode, p, dir))
}

// explainBuild says that there can be no repository if git refused, and what to do if it took too
// long.
func explainBuild(err error) error {
	switch {
	case errdefs.Is(err, errdefs.Deadline):
		return errdefs.New(errdefs.Deadline, "%w; give a smaller depth (--git=clean:DEPTH)", err)
	case errdefs.Is(err, errdefs.Precondition):
		return refused("%w", err)
	}
	return err
}

func (g *git) build(ctx context.Context, s *source, mode Mode, p *policy.Policy, dir string) error {
	f, err := g.filter(ctx, s, mode, p)
	if err != nil {
		return err
	}
	info := Info{Version: version, Mode: mode, Branch: s.branch, Head: f.clean[s.head], Source: s.head, Commits: len(f.order), Hides: f.hidden}
	if info.Head == "" {
		return errdefs.New(errdefs.Precondition, "the policy hides every file of the history")
	}
	if err := g.pack(ctx, &info); err != nil {
		return err
	}
	return g.store(dir, &info, f)
}

// checkAlternates refuses a list of alternates on which git would block, or that would fill its
// memory.
func checkAlternates(s *source) error {
	_, err := safefs.ReadRegular(int(s.objects.Fd()), "info/alternates", maxAlternates)
	if err != nil && !errdefs.Is(err, errdefs.NotFound) && !errors.Is(err, os.ErrNotExist) {
		return refused("objects/info/alternates: %w", err)
	}
	return nil
}

// filter makes the commits in the repository "work".
func (g *git) filter(ctx context.Context, s *source, mode Mode, p *policy.Policy) (f *stream, err error) {
	count := "--max-count=" + strconv.Itoa(mode.depth())
	parents, err := g.run(ctx, "work", nil, "rev-list", "--parents", "--topo-order", count, sourceRef, "--")
	if err != nil {
		return nil, err
	}
	f = &stream{
		shows: shows(p.ShowsContent), first: map[string]string{}, marks: map[string]string{}, clean: map[string]string{},
		reals: map[string]string{}, paths: map[string]bool{},
	}
	for line := range strings.Lines(parents) {
		if ids := strings.Fields(line); len(ids) > 1 {
			f.first[ids[0]] = ids[1]
		}
	}
	words, err := g.newLookup(ctx, len(s.head))
	if err != nil {
		return nil, err
	}
	defer words.process.kill()
	f.message = func(text []byte) ([]byte, error) { return words.replace(text, f.clean) }
	from, err := g.start(ctx, "work", "fast-export", "--no-data", "--show-original-ids", "--reencode=no", "--signed-tags=strip", "--topo-order", count, sourceRef)
	if err != nil {
		return nil, err
	}
	to, err := g.start(ctx, "work", "fast-import", "--quiet", "--force", "--done", "--date-format=raw-permissive")
	if err != nil {
		from.kill()
		return nil, err
	}
	f.in, f.out, f.ids = bufio.NewReaderSize(from.out, 1<<16), bufio.NewWriterSize(to.in, 1<<16), bufio.NewReader(to.out)
	err = f.run()
	if err != nil && !errors.Is(err, errImport) {
		from.kill()
		to.kill()
		return nil, err
	}
	if err != nil {
		from.kill()
		return nil, errors.Join(to.end(ctx), err)
	}
	return f, errors.Join(from.end(ctx), to.end(ctx))
}

// pack packs what the commit info.Head reaches, alone, and reads its tree as the index.
func (g *git) pack(ctx context.Context, info *Info) error {
	out, err := g.transfer(ctx, "work", "clean", info.Head+"\n", "--stdin")
	if err != nil {
		return err
	}
	fields := strings.Fields(out)
	if len(fields) == 0 {
		return errdefs.New(errdefs.Internal, "git index-pack: no name of a pack")
	}
	info.Pack = "pack-" + fields[len(fields)-1]
	if _, err := g.run(ctx, "clean", nil, "read-tree", info.Head); err != nil {
		return err
	}
	links, err := g.run(ctx, "clean", nil, "ls-files", "--stage", "-z")
	for line := range strings.SplitSeq(links, "\x00") {
		info.Links = info.Links || strings.HasPrefix(line, "160000 ")
	}
	return err
}

// transfer packs what the revisions reach in one repository and indexes the pack in another, with
// options of git index-pack. It returns what that prints.
func (g *git) transfer(ctx context.Context, from, to, revisions string, options ...string) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", hostError(err)
	}
	packed := make(chan error, 1)
	go func() {
		err := g.pipe(ctx, from, strings.NewReader(revisions), w, "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q")
		packed <- errors.Join(err, w.Close())
	}()
	out, err := g.run(ctx, to, r, append([]string{"index-pack"}, options...)...)
	_ = r.Close()
	if failure := <-packed; failure != nil && (err == nil || !isBroken(failure)) {
		return "", failure // which made the other one fail
	}
	return out, err
}

// isBroken reports whether git ended because nobody reads what it writes.
func isBroken(err error) bool {
	exit, is := errors.AsType[*exec.ExitError](err)
	if !is {
		return false
	}
	status, is := exit.Sys().(syscall.WaitStatus)
	return is && status.Signaled() && status.Signal() == syscall.SIGPIPE
}

// store copies what was made to the directory dir. The owner of the source could have put links in
// its place, which are not followed.
func (g *git) store(dir string, info *Info, f *stream) error {
	scratch, err := os.Open(g.scratch.path)
	if err != nil {
		return hostError(err)
	}
	defer scratch.Close()
	pack := "clean/objects/pack/" + info.Pack
	for from, to := range map[string]string{pack + ".pack": packFile, pack + ".idx": packIndex, "clean/index": indexFile} {
		if err := copyIn(scratch, from, filepath.Join(dir, to)); err != nil {
			return err
		}
	}
	var commits strings.Builder
	for _, c := range f.order {
		if c.clean == info.Head {
			c.real = info.Source // later commits, of hidden files alone, became this one
		}
		fmt.Fprintf(&commits, "%s %s\n", c.clean, c.real)
	}
	var paths strings.Builder
	for _, path := range slices.Sorted(maps.Keys(f.paths)) {
		paths.WriteString(path + "\x00")
	}
	text, err := json.Marshal(info)
	if err != nil {
		return hostError(err)
	}
	for name, content := range map[string]string{commitsFile: commits.String(), pathsFile: paths.String(), infoFile: string(text) + "\n"} {
		if err := safefs.WriteDurably(dir, name, []byte(content)); err != nil {
			return hostError(err)
		}
	}
	return nil
}

// copyIn copies a regular file of the directory from, durably.
func copyIn(from *os.File, name, to string) error {
	in, err := safefs.OpenRegular(int(from.Fd()), name)
	if err != nil {
		return hostError(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return hostError(err)
	}
	_, err = io.Copy(out, in)
	return hostError(errors.Join(err, out.Chmod(0o444), out.Sync(), out.Close()))
}
