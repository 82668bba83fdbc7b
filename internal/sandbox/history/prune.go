package history

import (
	"path/filepath"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// prune keeps the history within its bounds: it removes transactions that are too old, and the
// oldest images. now is the time.
func (s *Source) prune(now time.Time) error {
	keep := s.home.History
	entries, err := s.Entries()
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		if e.State != Pending && keep.Retention > 0 && now.Sub(e.Time) > keep.Retention {
			dir := e.dir
			if s.isAwaited(e) {
				dir = filepath.Join(dir, imagesName)
			}
			if err := s.remove(dir); err != nil {
				return err
			}
		}
	}
	if keep.MaxBytesPerSource == 0 {
		return nil
	}
	last := ""
	if n := len(entries); n > 0 && entries[n-1].Kind == Undo {
		last = entries[n-1].ID // perhaps nothing else has the changes that it took out of the source
	}
	_, err = s.pruneTo(keep.MaxBytesPerSource, last)
	return err
}

// isAwaited reports whether the sandbox still needs the journal, for what remains to be done in it.
func (s *Source) isAwaited(e *Entry) bool {
	if _, has := readRest(e.dir); !has {
		return false
	}
	_, err := s.home.Open(string(e.Sandbox))
	return !errdefs.Is(err, errdefs.NotFound)
}

// pruneTo removes the oldest images, but for those of the transaction keep, until the others have
// at most that many bytes. It returns the number of bytes that it freed.
func (s *Source) pruneTo(most int64, keep string) (freed int64, err error) {
	entries, err := s.Entries()
	if err != nil {
		return 0, err
	}
	var total int64
	for i := range entries {
		total += entries[i].Bytes
	}
	for i := range entries {
		e := &entries[i]
		if total <= most {
			break
		}
		if e.State == Pending || e.Expired || e.Bytes == 0 || e.ID == keep {
			continue
		}
		if err := s.remove(filepath.Join(e.dir, imagesName)); err != nil {
			return freed, err
		}
		total -= e.Bytes
		freed += e.Bytes
	}
	return freed, nil
}

// dropImages removes the images of a transaction that was reversed.
func (s *Source) dropImages(id string) error {
	entries, err := s.Entries()
	if err != nil {
		return err
	}
	for i := range entries {
		if entries[i].ID == id {
			return s.remove(filepath.Join(entries[i].dir, imagesName))
		}
	}
	return nil
}
