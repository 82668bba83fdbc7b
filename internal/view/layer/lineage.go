package layer

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// lineageName is the name of a file in a head, or in a frozen layer, that names layers of which it
// was made, other than the one below it. What the stack shows does not depend on them.
const lineageName = "lineage"

// A lineage file has a line for each layer, with one of these words before its name.
const (
	mergedWord = "merged" // a merge has brought its changes: it is kept
	wasWord    = "was"    // it was below before a squash: it is not kept, and may be missing
)

// Lineage has layers of which a head, or a frozen layer, was made.
type Lineage struct {
	Parents []string // the one below, and those that merges brought in
	Earlier []string // those that were below before layers were merged into one; they may be missing
}

// LineageOf returns the lineage of the head, or of the frozen layer, in dir; an empty one if there
// is none. Errors: Precondition if it is damaged.
func LineageOf(dir string) (Lineage, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return Lineage{}, nil
	}
	if err != nil {
		return Lineage{}, wrap("read lineage of", vpath.Root, err)
	}
	defer unix.Close(fd)
	l, err := readLineage(fd)
	return l, wrap("read lineage of", vpath.Root, err)
}

func readLineage(home int) (Lineage, error) {
	var l Lineage
	below, err := readBelow(home)
	if err != nil {
		return l, err
	}
	if below != "" {
		l.Parents = []string{below}
	}
	text, err := os.ReadFile(filepath.Join(safefs.ProcPath(home), lineageName))
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, errnoOf(err)
	}
	for line := range strings.Lines(string(text)) {
		word, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case !IsLayerName(name):
			return l, errdefs.New(errdefs.Precondition, "%s: damaged: %s names no layer", lineageName, vpath.Quote(line))
		case word == mergedWord:
			l.Parents = append(l.Parents, name)
		default:
			l.Earlier = append(l.Earlier, name)
		}
	}
	return l, nil
}

// errnoOf returns the errno in err, which wrap gives its kind, or err.
func errnoOf(err error) error {
	if no, ok := errors.AsType[unix.Errno](err); ok {
		return no
	}
	return err
}

// writeLineage writes the lineage of the head that is open as home.
func writeLineage(home int, merged, was []string) error {
	var b strings.Builder
	for _, name := range merged {
		b.WriteString(mergedWord + " " + name + "\n")
	}
	for _, name := range was {
		b.WriteString(wasWord + " " + name + "\n")
	}
	if b.Len() == 0 {
		return nil
	}
	return errnoOf(safefs.WriteDurably(safefs.ProcPath(home), lineageName, []byte(b.String())))
}

// keepLineage writes what frozen layers are made of to the head, before it lies on the source.
func (s *Stack) keepLineage(frozen []*layer) error {
	chain, merged := map[string]bool{}, map[string]bool{}
	for _, l := range frozen {
		chain[l.name] = true
	}
	was := maps.Clone(chain)
	for _, home := range append([]int{s.home}, homesOf(frozen)...) {
		l, err := readLineage(home)
		if err != nil {
			return err
		}
		for _, name := range l.Parents {
			if !chain[name] {
				merged[name] = true
			}
		}
		for _, name := range l.Earlier {
			was[name] = true
		}
	}
	maps.DeleteFunc(was, func(name string, _ bool) bool {
		_, err := os.Lstat(filepath.Join(s.o.Store, name))
		return err != nil || merged[name]
	})
	if err := s.dropAncestors(merged); err != nil {
		return err
	}
	return writeLineage(s.home, slices.Sorted(maps.Keys(merged)), slices.Sorted(maps.Keys(was)))
}

// dropAncestors drops the layers that are missing, and those of which another one was made.
func (s *Stack) dropAncestors(names map[string]bool) error {
	for name := range maps.Clone(names) {
		if _, err := os.Lstat(filepath.Join(s.o.Store, name)); err != nil {
			delete(names, name)
			continue
		}
		seen := map[string]bool{name: true}
		for pending := []string{name}; len(pending) > 0; pending = pending[1:] {
			l, err := LineageOf(filepath.Join(s.o.Store, pending[0]))
			if err != nil {
				return err
			}
			for _, parent := range l.Parents {
				if !seen[parent] {
					seen[parent] = true
					delete(names, parent)
					pending = append(pending, parent)
				}
			}
		}
	}
	return nil
}

func homesOf(layers []*layer) []int {
	homes := make([]int, len(layers))
	for i, l := range layers {
		homes[i] = l.home
	}
	return homes
}
