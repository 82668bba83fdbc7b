package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// The subtrees of the data, relative to its root.
const (
	treeMany    = "many"     // 10,000 small text files in 100 directories
	treeFlat    = "flat"     // 1,000 files in one directory
	treeBig     = "big"      // one file of 64 MiB
	treeOnce    = "once"     // files that a workload may change once
	treeTar     = "src.tar"  // 1,000 files
	treeRepo    = "repo"     // a git repository of 3,000 files
	treeCrates  = "crates"   // a cargo workspace without dependencies
	treeModule  = "module"   // a Go module without dependencies
	treeGoCache = "gocache"  // with the standard library built
	treePkgs    = "packages" // for npm and pip
	treeHome    = "home"     // HOME and TMPDIR of the tools
	treeOut     = "out"      // what workloads create
	treeWalked  = "walked"   // 100,000 empty files, in a root of its own
)

// seed makes the data the same in each run.
const seed = 20_06

// needle is in every needleEvery-th of the small files.
const needle = "agentfense-needle"

// A generator makes one subtree below the root dir.
type generator struct {
	tree string
	what string
	make func(ctx context.Context, dir string) error
}

var generators = []generator{
	{treeMany, "10,000 small files", makeMany},
	{treeFlat, "a directory of 1,000", makeFlat},
	{treeBig, "a file of 64 MiB", makeBig},
	{treeOnce, "files to change", makeOnce},
	{treeTar, "an archive", makeTar},
	{treeRepo, "a git repository", makeRepo},
	{treePkgs, "packages for npm and pip", makePackages},
	{treeCrates, "a cargo workspace", makeCrates},
	{treeModule, "a Go module, and the standard library in its build cache", makeModule},
}

func manyPath(i int) string {
	return fmt.Sprintf("%s/d%02d/f%05d.txt", treeMany, i%manyDirs, i)
}

// manySize spreads the sizes of small files from 0.2 to 8 KiB, mostly small.
func manySize(i int) int {
	x := i * 7919 % 1000
	return 200 + x*x*8/1000
}

// text returns n bytes of lines of words.
func text(r *rand.Rand, n int) []byte {
	words := []string{"view ", "source ", "delta ", "layer ", "policy ", "rule ", "whiteout ", "sandbox ", "session\n", "exec "}
	b := bytes.NewBuffer(make([]byte, 0, n+16))
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
	}
	return b.Bytes()[:n]
}

func newRandom(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// put writes a file and makes the directories above it.
func put(path string, content []byte) error {
	err := os.WriteFile(path, content, 0o644)
	if os.IsNotExist(err) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		err = os.WriteFile(path, content, 0o644)
	}
	return err
}

func makeMany(ctx context.Context, dir string) error {
	r := newRandom(1)
	for i := range manyFiles {
		content := text(r, manySize(i))
		if i%needleEvery == 0 {
			copy(content[100:], needle)
		}
		if err := put(filepath.Join(dir, manyPath(i)), content); err != nil || ctx.Err() != nil {
			return firstError(ctx, err)
		}
	}
	return nil
}

func makeFlat(_ context.Context, dir string) error {
	for i := range flatFiles {
		if err := put(filepath.Join(dir, treeFlat, fmt.Sprintf("entry-%04d", i)), nil); err != nil {
			return err
		}
	}
	return nil
}

func makeBig(_ context.Context, dir string) error {
	content := make([]byte, bigBytes)
	r := rand.NewChaCha8([32]byte{seed & 0xff})
	_, _ = r.Read(content) // never fails: math/rand/v2
	return put(filepath.Join(dir, treeBig), content)
}

func makeOnce(_ context.Context, dir string) error {
	r := newRandom(2)
	for _, work := range []string{"append", "overwrite", "unlink", "rename"} {
		for i := range onceFiles {
			if err := put(filepath.Join(dir, entry(onceDir(work), i)), text(r, 4<<10)); err != nil {
				return err
			}
		}
	}
	return nil
}

func makeTar(_ context.Context, dir string) error {
	f, err := os.Create(filepath.Join(dir, treeTar))
	if err != nil {
		return err
	}
	defer f.Close()
	r := newRandom(3)
	w := tar.NewWriter(f)
	for i := range tarFiles {
		content := text(r, manySize(i))
		h := tar.Header{Name: fmt.Sprintf("pkg/d%02d/f%04d.txt", i%50, i), Mode: 0o644, Size: int64(len(content))}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return firstOf(w.Close(), f.Sync())
}

func repoPath(i int) string { return fmt.Sprintf("%s/pkg%02d/file%04d.go", treeRepo, i%60, i) }

func makeRepo(_ context.Context, dir string) error {
	r := newRandom(4)
	for i := range repoFiles {
		if err := put(filepath.Join(dir, repoPath(i)), text(r, manySize(i))); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-qm", "start"}} {
		if err := hostTool(dir, treeRepo, "git", args...); err != nil {
			return err
		}
	}
	return nil
}

// hostTool runs a tool as the workloads do, on the host.
func hostTool(root, dir, name string, args ...string) error {
	in := inside{Tools: findTools(), Root: root}
	_, err := in.runIn(dir, name, args...)
	return err
}

// makeWalked makes the tree of the memory row: empty files, because only the
// names count there.
func makeWalked(ctx context.Context, dir string) error {
	for i := range walkedFiles {
		p := filepath.Join(dir, fmt.Sprintf("d%03d/e%02d/file-%06d", i%100, i/100%10, i))
		if err := put(p, nil); err != nil || ctx.Err() != nil {
			return firstError(ctx, err)
		}
	}
	return nil
}

func firstError(ctx context.Context, err error) error { return firstOf(err, ctx.Err()) }

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
