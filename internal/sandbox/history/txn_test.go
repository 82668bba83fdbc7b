package history

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/sandbox/changes"
)

// memoryJournal is a journal of one line that is durable already.
func memoryJournal(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("journal", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "journal")
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(durableLine); err != nil {
		t.Fatal(err)
	}
	return f
}

const durableLine = `{"ready":true}` + "\n"

func journalText(t *testing.T, f *os.File) string {
	t.Helper()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// addMany adds lines until more is written than is kept in memory.
func addMany(t *testing.T, txn *Txn) (lines int) {
	t.Helper()
	path := strings.Repeat("d/", 1000)
	for lines = 1; ; lines++ {
		txn.add(line{Step: &Step{Path: path}})
		if txn.lines.Len() > maxLines {
			t.Fatal("more lines in memory than maxLines")
		}
		if txn.written && txn.lines.Len() > maxLines/2 {
			return lines
		}
	}
}

func TestAFlushWritesAllLines(t *testing.T) {
	f := memoryJournal(t)
	txn := &Txn{journal: f}
	lines := addMany(t, txn)
	if err := txn.flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	steps := 0
	whole, err := eachLine(f, func(l *line) error {
		if l.Step != nil {
			steps++
		}
		return nil
	})
	if size := int64(len(journalText(t, f))); err != nil || steps != lines || whole != size {
		t.Errorf("%d steps in %d bytes, %v; want %d in %d", steps, whole, err, lines, size)
	}
}

func TestAFlushWithoutRoomWritesNothing(t *testing.T) {
	f := memoryJournal(t)
	txn := &Txn{journal: f}
	addMany(t, txn)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	if err := txn.flush(); err == nil {
		t.Error("no error")
	}
	if text := journalText(t, f); text != durableLine {
		t.Errorf("the journal has %d bytes, want only those that were durable", len(text))
	}
}

func TestALaterLineDoesNotHideAFailure(t *testing.T) {
	f := memoryJournal(t)
	txn := &Txn{journal: f}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	for txn.failure == nil {
		txn.add(line{Step: &Step{Path: strings.Repeat("d/", 1000)}})
	}
	txn.add(line{Ready: true})
	if err := txn.Flush(); err == nil {
		t.Error("no error")
	}
}

// A transaction can have more to be done than fits into one part.
func TestARestIsReadAsItWasKept(t *testing.T) {
	dir := t.TempDir()
	journal, err := os.Create(filepath.Join(dir, journalName))
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	txn := &Txn{journal: journal, entry: &Entry{dir: dir}}
	want := []changes.Version{{Path: "/a"}, {Path: "/b", Deleted: true}, {Path: "/c"}}
	rest, err := txn.KeepRest(func(yield func(any) bool) {
		for _, v := range want {
			if !yield(v) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []changes.Version
	err = rest.Read(func(part json.RawMessage) error {
		var v changes.Version
		err := json.Unmarshal(part, &v)
		got = append(got, v)
		return err
	})
	if err != nil || len(got) != 3 || got[1].Path != "/b" || !got[1].Deleted {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if err := (&Rest{entry: &Entry{dir: emptyJournal(t)}}).Read(func(json.RawMessage) error { return nil }); err == nil {
		t.Error("a journal without a rest is read")
	}
}

// A damaged journal may name a step that it does not have.
func TestANumberWithoutAStepIsIgnored(t *testing.T) {
	for _, text := range []string{`{"placed":{"step":-1}}`, `{"placed":{"step":1}}`, `{"left":[-1]}`, `{"left":[1]}`} {
		e := &Entry{dir: journalOf(t, `{"step":{"path":"/f"}}`+"\n"+durableLine+text+"\n")}
		if err := e.Load(); err != nil || len(e.Steps) != 1 || e.Steps[0].Left {
			t.Errorf("%s: %+v, %v", text, e.Steps, err)
		}
	}
}

func emptyJournal(t *testing.T) string {
	t.Helper()
	return journalOf(t, durableLine)
}

// journalOf returns a directory with a journal of that text.
func journalOf(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, journalName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
