package review

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// What is read at most to find renames.
const (
	renameFiles = 1000
	renameBytes = 64 << 20
)

// findRenames pairs added files with deleted ones of the same content and mode. It
// is for showing only: an apply takes each of the two by itself. Files that are empty,
// in a group, or changed in the source meanwhile are left alone, and so is a
// deletion with a mark, which is to be seen.
func findRenames(w *changes.Work, files []FileDiff) {
	gone := map[int64][]*FileDiff{} // by size
	for i := range files {
		if f := &files[i]; f.Status == changes.Deleted && f.Mark == nil && canBeRenamed(f, f.Old) {
			gone[f.Old.SizeBytes] = append(gone[f.Old.SizeBytes], f)
		}
	}
	if len(gone) == 0 {
		return
	}
	s := renameSearch{work: w, sums: map[vpath.Path]string{}, gone: gone}
	for i := range files {
		if f := &files[i]; f.Status == changes.Added && canBeRenamed(f, f.New) {
			s.pair(f)
		}
	}
}

func canBeRenamed(f *FileDiff, side *Side) bool {
	return f.Group == "" && !f.Stale && side != nil && side.Mode&record.TypeBits == unix.S_IFREG && side.SizeBytes > 0
}

type renameSearch struct {
	work  *changes.Work
	gone  map[int64][]*FileDiff
	sums  map[vpath.Path]string // of the source's files
	files int
	bytes int64
}

// pair finds where f was, at best under the same name.
func (s *renameSearch) pair(f *FileDiff) {
	candidates := s.gone[f.New.SizeBytes]
	if !slices.ContainsFunc(candidates, func(c *FileDiff) bool { return c.RenamedTo == "" }) || !s.mayRead(f.New.SizeBytes) {
		return
	}
	sum, err := manifest.SumOfDelta(s.work, f.Path)
	if err != nil || sum == "" {
		return // it is shown as an addition
	}
	slices.SortFunc(candidates, func(a, b *FileDiff) int {
		return cmp.Or(first(a.Path.Base() == f.Path.Base(), b.Path.Base() == f.Path.Base()), cmp.Compare(a.Path, b.Path))
	})
	for _, c := range candidates {
		if c.RenamedTo == "" && c.Old.Mode == f.New.Mode && s.sourceSum(c) == sum {
			f.RenamedFrom, c.RenamedTo = c.Path, f.Path
			return
		}
	}
}

func (s *renameSearch) mayRead(size int64) bool {
	s.files++
	s.bytes += size
	return s.files <= renameFiles && s.bytes <= renameBytes
}

// sourceSum is the SHA-256 of what the source has at a deleted path, "" if that
// is not known.
func (s *renameSearch) sourceSum(f *FileDiff) string {
	if sum, known := s.sums[f.Path]; known {
		return sum
	}
	sum := ""
	if s.mayRead(f.Old.SizeBytes) {
		if file, err := s.work.Stack.OpenSource(f.Path); err == nil {
			if sum, err = manifest.SumOf(file); err != nil {
				sum = ""
			}
			file.Close()
		}
	}
	s.sums[f.Path] = sum
	return sum
}
