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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun"
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

// git makes a clean repository, from "work" to "clean".
type git struct{ *gitrun.Git }

// build makes the repository of a source in the directory dir. Errors: Precondition with the reason
// if there can be none; Deadline; Canceled; Unsupported without a git.
func build(ctx context.Context, s *Source, mode Mode, p *policy.Policy, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	runner, err := gitrun.New(s.Credential())
	if err != nil {
		return err
	}
	g := &git{runner}
	defer func() { err = errors.Join(err, g.Close()) }()
	if err := errors.Join(g.MakeRepository("work", s.Head, s.files(), s.Objects), g.MakeRepository("clean", s.Head, nil), g.Give()); err != nil {
		return err
	}
	return explainBuild(g.build(ctx, s, mode, p, dir))
}

// refused is an error that says why there can be no clean repository.
func refused(format string, args ...any) error {
	return errdefs.New(errdefs.Precondition, "a clean repository (--git=clean) cannot be made: %w", errdefs.New(errdefs.Precondition, format, args...))
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

func (g *git) build(ctx context.Context, s *Source, mode Mode, p *policy.Policy, dir string) error {
	f, err := g.filter(ctx, s, mode, p)
	if err != nil {
		return err
	}
	info := Info{Version: version, Mode: mode, Branch: s.branch, Head: f.clean[s.Head], Source: s.Head, Commits: len(f.order), Hides: f.hidden}
	if info.Head == "" {
		return errdefs.New(errdefs.Precondition, "the policy hides every file of the history")
	}
	if err := g.pack(ctx, &info); err != nil {
		return err
	}
	return g.store(dir, &info, f)
}

// filter makes the commits in the repository "work".
func (g *git) filter(ctx context.Context, s *Source, mode Mode, p *policy.Policy) (f *stream, err error) {
	count := "--max-count=" + strconv.Itoa(mode.depth())
	parents, err := g.Run(ctx, "work", nil, "rev-list", "--parents", "--topo-order", count, gitrun.HeadRef, "--")
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
	words, err := g.newLookup(ctx, len(s.Head))
	if err != nil {
		return nil, err
	}
	defer words.process.Kill()
	f.message = func(text []byte) ([]byte, error) { return words.replace(text, f.clean) }
	from, err := g.Start(ctx, "work", "fast-export", "--no-data", "--show-original-ids", "--reencode=no", "--signed-tags=strip", "--topo-order", count, gitrun.HeadRef)
	if err != nil {
		return nil, err
	}
	to, err := g.Start(ctx, "work", "fast-import", "--quiet", "--force", "--done", "--date-format=raw-permissive")
	if err != nil {
		from.Kill()
		return nil, err
	}
	f.in, f.out, f.ids = bufio.NewReaderSize(from.Out, 1<<16), bufio.NewWriterSize(to.In, 1<<16), bufio.NewReader(to.Out)
	err = f.run()
	if err != nil && !errors.Is(err, errImport) {
		from.Kill()
		to.Kill()
		return nil, err
	}
	if err != nil {
		from.Kill()
		return nil, errors.Join(to.End(ctx), err)
	}
	return f, errors.Join(from.End(ctx), to.End(ctx))
}

// pack packs what the commit info.Head reaches, alone, and reads its tree as the index.
func (g *git) pack(ctx context.Context, info *Info) error {
	out, err := g.Transfer(ctx, "work", "clean", info.Head+"\n", "--stdin")
	if err != nil {
		return err
	}
	fields := strings.Fields(out)
	if len(fields) == 0 {
		return errdefs.New(errdefs.Internal, "git index-pack: no name of a pack")
	}
	info.Pack = "pack-" + fields[len(fields)-1]
	if _, err := g.Run(ctx, "clean", nil, "read-tree", info.Head); err != nil {
		return err
	}
	links, err := g.Run(ctx, "clean", nil, "ls-files", "--stage", "-z")
	for line := range strings.SplitSeq(links, "\x00") {
		info.Links = info.Links || strings.HasPrefix(line, "160000 ")
	}
	return err
}

// store copies what was made to the directory dir. The owner of the source could have put links in
// its place, which are not followed.
func (g *git) store(dir string, info *Info, f *stream) error {
	scratch, err := os.Open(g.Path())
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

func hostError(err error) error { return safefs.OwnError("clean repository", err) }
