package history

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Rest is what remains to be done in the sandbox after a transaction is committed. The journal has
// it. Until it is done, an empty file is in the directory of the transaction, so that the next
// command does it after a kill.
type Rest struct {
	entry *Entry
	Told  bool // the audit log has the record of the transaction
}

// The names of the file, before and after the record was written.
const (
	untoldName = "untold"
	restName   = "rest"
)

func restPath(dir string, told bool) string {
	if told {
		return filepath.Join(dir, restName)
	}
	return filepath.Join(dir, untoldName)
}

// markRest makes the file of a transaction that will have a rest. The caller makes it durable.
func (e *Entry) markRest() error {
	if !e.HasRest {
		return nil
	}
	if err := os.WriteFile(restPath(e.dir, false), nil, 0o600); err != nil {
		return record.HostError("history", err)
	}
	return nil
}

// KeepRest writes to the journal what remains to be done after Commit, which makes it durable. The
// transaction has begun with Header.HasRest.
func (t *Txn) KeepRest(what any) (*Rest, error) {
	text, err := json.Marshal(what)
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "history: %w", err)
	}
	t.add(line{Rest: text})
	if err := t.write(); err != nil {
		return nil, err
	}
	failpoint.At("journal: rest kept")
	return &Rest{entry: t.entry}, nil
}

// Read reads what remains. Errors: Precondition if it is damaged; those of the host.
func (r *Rest) Read(what any) error {
	if err := r.entry.Load(); err != nil {
		return err
	}
	if err := json.Unmarshal(r.entry.rest, what); err != nil {
		return errdefs.New(errdefs.Precondition, "history %s: the journal is damaged: %w", record.HostPath(r.entry.dir), err)
	}
	return nil
}

// MarkTold notes that the audit log has the record of the transaction. It does nothing for nil.
func (r *Rest) MarkTold() error {
	if r == nil || r.Told {
		return nil
	}
	if err := os.Rename(restPath(r.entry.dir, false), restPath(r.entry.dir, true)); err != nil {
		return record.HostError("history", err)
	}
	r.Told = true
	return nil
}

// Remove notes that nothing remains to be done. It does nothing for nil.
func (r *Rest) Remove() error {
	if r == nil {
		return nil
	}
	if err := safefs.IgnoreAbsent(os.Remove(restPath(r.entry.dir, r.Told))); err != nil {
		return record.HostError("history", err)
	}
	return nil
}

// Rests returns what remains to be done in a part of a sandbox, the oldest first.
func (s *Source) Rests(of *record.Sandbox) ([]*Rest, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var list []*Rest
	for _, name := range names {
		dir := filepath.Join(s.dir, name)
		told, has := readRest(dir)
		if !has {
			continue
		}
		e, err := readSummary(dir)
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, errNotReady):
		case err != nil:
			return nil, err
		case e.State == Committed && e.Sandbox == of.ID() && e.Mount == of.Mount():
			list = append(list, &Rest{e, told})
		}
	}
	return list, nil
}

// readRest reports whether something remains to be done of the transaction in dir.
func readRest(dir string) (told, has bool) {
	for _, told := range []bool{true, false} {
		if _, err := os.Lstat(restPath(dir, told)); err == nil {
			return told, true
		}
	}
	return false, false
}
