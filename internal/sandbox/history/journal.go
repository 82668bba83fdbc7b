package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// The names in the directory of a transaction.
const (
	journalName = "journal"
	imagesName  = "images"
)

// line is a line of the journal: one of its fields.
type line struct {
	Header *Header     `json:"header,omitempty"` // the first line
	Step   *Step       `json:"step,omitempty"`
	Ready  bool        `json:"ready,omitempty"` // the steps are complete, and may begin
	Placed *placedLine `json:"placed,omitempty"`
	// Rest is a part of what remains to be done in the sandbox after the commit, see Txn.KeepRest.
	Rest json.RawMessage `json:"rest,omitempty"`
	Left []int           `json:"left,omitempty"` // steps that were not executed
	// Moved says that the branch was moved. The owner can move it on from then.
	Moved bool     `json:"moved,omitempty"`
	End   *endLine `json:"end,omitempty"` // the last line
}

// placedLine has what a step is about to place, known only after it was prepared.
type placedLine struct {
	Step  int     `json:"step"`
	After *Entity `json:"after"`
}

// endLine ends a transaction.
type endLine struct {
	State State `json:"state"`
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"` // of the images on the disk
}

// endMost is longer than the last line with an endLine.
const endMost = 256

// errNotReady is the error for a journal without the line that permits the first step.
var errNotReady = errors.New("the transaction did not begin")

// openJournal opens the journal in the directory of a transaction. Errors: errNotReady;
// os.ErrNotExist if the directory has gone; those of the host.
func openJournal(dir string) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, journalName))
	switch {
	case err == nil:
		return f, nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, record.HostError("history", err)
	}
	if _, statErr := os.Stat(dir); statErr == nil {
		err = errNotReady
	}
	return nil, err
}

// readSummary reads a transaction without its steps. Errors: as openJournal; Precondition for a
// journal of a later version.
func readSummary(dir string) (*Entry, error) {
	f, err := openJournal(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	e := &Entry{State: Pending, dir: dir}
	first, err := bufio.NewReader(f).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, record.HostError("history", err)
	}
	var l line
	if json.Unmarshal([]byte(first), &l) != nil || l.Header == nil {
		return nil, errNotReady
	}
	if err := e.add(&l); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, record.HostError("history", err)
	}
	end := make([]byte, min(info.Size(), endMost))
	if _, err := f.ReadAt(end, info.Size()-int64(len(end))); err != nil {
		return nil, record.HostError("history", err)
	}
	text := strings.TrimSuffix(string(end), "\n")
	last := line{}
	if json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &last) == nil && len(text) < len(end) && last.End != nil {
		_ = e.add(&last)
	}
	if _, err := os.Stat(filepath.Join(dir, imagesName)); errors.Is(err, os.ErrNotExist) {
		e.Expired, e.Bytes = true, 0
	}
	return e, nil
}

// Load reads the steps of a transaction, as far as the journal is complete. Errors: errNotReady;
// NotFound if the transaction has gone.
func (e *Entry) Load() error {
	f, err := openJournal(e.dir)
	if errors.Is(err, os.ErrNotExist) {
		return errdefs.New(errdefs.NotFound, "transaction %s: removed meanwhile", e.ID)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	e.Steps = nil
	ready := false
	e.whole, err = eachLine(f, func(l *line) error {
		ready = ready || l.Ready
		return e.add(l)
	})
	if err == nil && !ready {
		err = errNotReady
	}
	return err
}

// eachLine calls do with each line of a journal, as far as it is complete, and returns how many
// bytes these lines have.
func eachLine(f *os.File, do func(*line) error) (whole int64, err error) {
	for from := bufio.NewReader(f); ; {
		raw, err := from.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return whole, record.HostError("history", err)
		}
		var l line
		if err != nil || json.Unmarshal(raw, &l) != nil {
			return whole, nil // killed while it wrote the line, before the step
		}
		whole += int64(len(raw))
		if err := do(&l); err != nil {
			return whole, err
		}
	}
}

// add adds what a line says.
func (e *Entry) add(l *line) error {
	switch {
	case l.Header != nil:
		if l.Header.Version > version {
			return errdefs.New(errdefs.Precondition, "history %s: a later version of agentfense wrote it: use that version", record.HostPath(e.dir))
		}
		e.Header = *l.Header
	case l.Step != nil:
		e.Steps = append(e.Steps, *l.Step)
	case l.Placed != nil && e.hasStep(l.Placed.Step):
		e.Steps[l.Placed.Step].After = l.Placed.After
	case l.Moved:
		e.moved = true
	case l.End != nil:
		e.State, e.Count, e.Bytes = l.End.State, l.End.Count, l.End.Bytes
	}
	for _, i := range l.Left {
		if e.hasStep(i) {
			e.Steps[i].Left = true
		}
	}
	return nil
}

func (e *Entry) hasStep(number int) bool { return number >= 0 && number < len(e.Steps) }

// end returns the line that commits a transaction, after left was set.
func (e *Entry) end() *endLine {
	end := &endLine{State: Committed}
	for _, s := range e.Steps {
		if s.Left {
			continue
		}
		if !s.Implied {
			end.Count++
		}
		end.Bytes = safefs.AddSizes(end.Bytes, s.imageBytes())
	}
	return end
}

// blockBytes is the unit of Entity.Blocks.
const blockBytes = 512

// imageBytes returns what the image of the step takes on the disk.
func (s *Step) imageBytes() int64 {
	if !s.hasImage() {
		return 0
	}
	return s.Before.Blocks * blockBytes
}
