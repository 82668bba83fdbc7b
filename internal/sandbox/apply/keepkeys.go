package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
)

// merging is a file of which only keys are applied.
type merging struct {
	text  []byte // what the source gets
	sum   string // of the delta's file, in hex
	mtime unix.Timespec
	keys  []string
	// conflicts are keys that the source has changed, too.
	conflicts []string
	// rest says that the delta's file differs in other keys, and so stays.
	rest bool
}

// readDocument reads a JSON file, as far as one may be large.
func readDocument(f *os.File) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, jsonkeys.MaxBytes+1))
	if err == nil && len(text) > jsonkeys.MaxBytes {
		err = errdefs.New(errdefs.Invalid, "it is larger than %d MiB", jsonkeys.MaxBytes>>20)
	}
	return text, err
}

// mergeKeys plans what the source's file becomes with the listed keys of the delta's. If
// that cannot be, the step waits.
func (p *plan) mergeKeys(s *step, keys []string) error {
	ours, err := p.deltaText(s)
	if err != nil {
		return p.waitFor(s, err)
	}
	theirs, now, err := p.sourceNow(s)
	if err != nil {
		return p.waitFor(s, err)
	}
	began, err := p.baseText(s, theirs)
	if err != nil {
		return p.waitFor(s, err)
	}
	m, err := jsonkeys.Merge(theirs, began, ours, keys)
	if err != nil {
		return p.waitFor(s, err)
	}
	sum := sha256.Sum256(ours)
	s.merging = &merging{text: m.Text, sum: hex.EncodeToString(sum[:]), keys: m.Taken, conflicts: m.Conflicts, rest: m.Rest}
	if s.merging.mtime, err = unix.TimeToTimespec(time.Now()); err != nil {
		return err
	}
	if len(m.Taken) == 0 {
		s.stop(Skipped, "")
		return nil
	}
	s.Base, s.Fresh, s.outcome, s.reason = now, true, Applied, ""
	return nil
}

// waitFor lets the step wait because of err, unless that is a failure of the host.
func (p *plan) waitFor(s *step, err error) error {
	if errdefs.Is(err, errdefs.Exhausted) {
		return err
	}
	s.stop(Skipped, "%s", record.UnwrapErrno(err))
	return nil
}

// deltaText returns the delta's file.
func (p *plan) deltaText(s *step) (text []byte, err error) {
	var f *os.File
	err = rights.AsOwner(func() (err error) {
		f, err = p.work.Stack.OpenDelta(s.Path)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if text, err = readDocument(f); err != nil {
		return nil, fmt.Errorf("the sandbox's file: %w", err)
	}
	return text, isUnchanged(f, &step{Change: s.Change})
}

// stageMerged stages what a merge has made.
func (a *applier) stageMerged(s *step, e changes.Entry, l changes.Look) (*changes.Staged, error) {
	fd, err := unix.MemfdCreate("merged", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "apply %s: %w", s.Path, err)
	}
	f := os.NewFile(uintptr(fd), "merged")
	defer f.Close()
	if _, err = f.Write(s.merging.text); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "apply %s: %w", s.Path, err)
	}
	l.Mode, l.Mtime = s.Base.Mode&record.PermBits, s.merging.mtime
	file, err := e.Stage(f, l)
	if err != nil {
		return nil, err
	}
	file.Sum = s.merging.sum
	return file, a.plan.checkSum(s, s.merging.sum)
}

// keepsRest reports whether the delta keeps its file after the step, because it has more changes.
func (s *step) keepsRest() bool { return s.merging != nil && s.merging.rest }

// placedMode is the mode of the regular file that the step places.
func (s *step) placedMode() uint32 {
	if s.merging != nil {
		return unix.S_IFREG | s.Base.Mode&record.PermBits
	}
	return unix.S_IFREG | s.Info.Mode&record.PermBits
}
