package history

import (
	"encoding/json"
	"errors"
	"iter"
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

// KeepRest writes to the journal what remains to be done after Commit, which makes it durable: each
// part is a line. The transaction has begun with Header.HasRest.
func (t *Txn) KeepRest(parts iter.Seq[any]) (*Rest, error) {
	for part := range parts {
		text, err := json.Marshal(part)
		if err != nil {
			return nil, errdefs.New(errdefs.Internal, "history: %w", err)
		}
		t.add(line{Rest: text})
	}
	if err := t.write(); err != nil {
		return nil, err
	}
	failpoint.At("journal: rest kept")
	return &Rest{entry: t.entry}, nil
}

// Read calls do with each part of what remains. Errors: Precondition if one is damaged; those of
// the host.
func (r *Rest) Read(do func(part json.RawMessage) error) error {
	f, err := openJournal(r.entry.dir)
	if err != nil {
		return record.HostError("history", err)
	}
	defer f.Close()
	parts := 0
	_, err = eachLine(f, func(l *line) error {
		if l.Rest == nil {
			return nil
		}
		parts++
		if err := do(l.Rest); err != nil {
			return r.damaged(err)
		}
		return nil
	})
	if err == nil && parts == 0 {
		err = r.damaged(errors.New("what remains to be done is not there"))
	}
	return err
}

func (r *Rest) damaged(why error) error {
	return errdefs.New(errdefs.Precondition, "history %s: the journal is damaged: %w", record.HostPath(r.entry.dir), why)
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
