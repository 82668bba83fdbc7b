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
// deletion with a mark, which is to be seen. sumNew and sumOld return the SHA-256 of what a file
// has, and had; "" if that is not known.
func findRenames(files []FileDiff, sumNew, sumOld func(*FileDiff) string) {
	gone := map[int64][]*FileDiff{} // by size
	for i := range files {
		if f := &files[i]; f.Status == changes.Deleted && f.Mark == nil && canBeRenamed(f, f.Old) {
			gone[f.Old.SizeBytes] = append(gone[f.Old.SizeBytes], f)
		}
	}
	if len(gone) == 0 {
		return
	}
	s := renameSearch{sumNew: sumNew, sumOld: sumOld, sums: map[vpath.Path]string{}, gone: gone}
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
	sumNew, sumOld func(*FileDiff) string
	gone           map[int64][]*FileDiff
	sums           map[vpath.Path]string // of deleted files
	files          int
	bytes          int64
}

// pair finds where f was, at best under the same name.
func (s *renameSearch) pair(f *FileDiff) {
	candidates := s.gone[f.New.SizeBytes]
	if !slices.ContainsFunc(candidates, func(c *FileDiff) bool { return c.RenamedTo == "" }) || !s.mayRead(f.New.SizeBytes) {
		return
	}
	sum := s.sumNew(f)
	if sum == "" {
		return // it is shown as an addition
	}
	slices.SortFunc(candidates, func(a, b *FileDiff) int {
		return cmp.Or(first(a.Path.Base() == f.Path.Base(), b.Path.Base() == f.Path.Base()), cmp.Compare(a.Path, b.Path))
	})
	for _, c := range candidates {
		if c.RenamedTo == "" && c.Old.Mode == f.New.Mode && s.earlierSum(c) == sum {
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

// earlierSum is the SHA-256 of what was at a deleted path, "" if that is not known.
func (s *renameSearch) earlierSum(f *FileDiff) string {
	if sum, known := s.sums[f.Path]; known {
		return sum
	}
	sum := ""
	if s.mayRead(f.Old.SizeBytes) {
		sum = s.sumOld(f)
	}
	s.sums[f.Path] = sum
	return sum
}

// sumOfDelta sums up what the delta has.
func sumOfDelta(w *changes.Work) func(*FileDiff) string {
	return func(f *FileDiff) string {
		sum, err := manifest.SumOfDelta(w, f.Path)
		if err != nil {
			return "" // it is shown as an addition
		}
		return sum
	}
}

// sumOfSource sums up what the source has.
func sumOfSource(w *changes.Work) func(*FileDiff) string {
	return func(f *FileDiff) string {
		file, err := w.Stack.OpenSource(f.Path)
		if err != nil {
			return ""
		}
		defer file.Close()
		sum, err := manifest.SumOf(file)
		if err != nil {
			return ""
		}
		return sum
	}
}
