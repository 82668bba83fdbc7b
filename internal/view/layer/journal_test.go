package layer

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

// baseText returns the recorded content of p, "" if there is none.
func (b *bench) baseText(p vpath.Path) string {
	b.t.Helper()
	base, err := b.Base(p)
	must(b.t, err)
	f, err := b.BaseContent(base)
	if errors.Is(err, unix.ENOENT) {
		return ""
	}
	must(b.t, err)
	defer f.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(f)
	must(b.t, err)
	return text.String()
}

// changeLog puts what change makes of the log in its place, while the stack is
// closed.
func (b *bench) changeLog(change func(log []byte) []byte) {
	b.t.Helper()
	b.close()
	name := filepath.Join(b.dir, journalName)
	log, err := os.ReadFile(name)
	must(b.t, err)
	must(b.t, os.WriteFile(name, change(log), 0o600))
	b.open()
}

func TestContentsAreKeptToTheByte(t *testing.T) {
	contents := map[string]string{
		"empty": "", "line": "text\n", "escapes": "\\n\\\\n\n\\0\x00\\", "binary": "\x00\xff\n\x00",
		"longest in the log": strings.Repeat("\n", inLogMax), "file of its own": strings.Repeat("a\n", inLogMax/2) + "b",
	}
	b := newBench(t, contents)
	for name := range contents {
		b.write("/"+name, "new")
	}
	for range 2 {
		for name, want := range contents {
			if got := b.baseText(vpath.Path("/" + name)); got != want {
				t.Errorf("of %q is recorded %.40q (%d bytes)", name, got, len(got))
			}
		}
		b.reopen()
	}
}

func TestEqualContentsAreKeptOnce(t *testing.T) {
	b := newBench(t, map[string]string{"a": strings.Repeat("x", 9999), "b": strings.Repeat("x", 9999), "c": strings.Repeat("x", 9999)})
	b.write("/a", "new")
	b.write("/b", "new")
	b.reopen()
	b.write("/c", "new")
	if got := b.journal.size; got > 15_000 {
		t.Errorf("the log has %d bytes", got)
	}
	if got := b.baseText("/c"); len(got) != 9999 {
		t.Errorf("recorded are %d bytes", len(got))
	}
}

func TestRecordsOfASourceFileAreDurableBeforeItsCopyShows(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		b := newBench(t, map[string]string{"a": "1", "b": "2"})
		b.journal.inPlace = inPlace
		for _, p := range []vpath.Path{"/a", "/b"} {
			_, err := b.CopyUp(p)
			must(t, err)
			if j := &b.journal; j.synced.Load() != j.size {
				t.Errorf("in place %t: after the copy-up of %s %d bytes of %d are durable", inPlace, p, j.synced.Load(), j.size)
			}
		}
	}
}

// TestTheLogIsSyncedItselfWhereItsBlocksAreNot: a flush of the disk is enough
// only for records in place of zeros that an earlier sync has made durable.
func TestTheLogIsSyncedItselfWhereItsBlocksAreNot(t *testing.T) {
	b := newBench(t, nil)
	j := &b.journal
	j.inPlace = true
	record := func() span {
		base := someBase
		must(t, j.keep(&base, bytes.Repeat([]byte{'x'}, 1000)))
		at, err := j.add(baseRecord("/a", base))
		must(t, err)
		return at
	}
	if j.land(record()) {
		t.Fatal("a flush is said to be enough for a log that was never synced")
	}
	must(t, j.sync(record()))
	at := record()
	if !j.land(at) {
		t.Fatal("a flush is said not to be enough in place of durable zeros")
	}
	j.confirm(at)
	for j.size <= j.settled {
		at = record()
	}
	if j.land(at) {
		t.Error("a flush is said to be enough beyond the durable zeros")
	}
	must(t, j.sync(at))
	j.inPlace = false
	if j.land(record()) {
		t.Error("a flush is said to be enough where blocks move")
	}
	j.inPlace = true
	must(t, j.clear())
	if j.land(record()) {
		t.Error("a flush is said to be enough for a log that was cut")
	}
}

func FuzzReadLog(f *testing.F) {
	record := appendRecord([]byte(journalHeader), baseRecord("/a", someBase))
	f.Add(record)
	f.Add(append(record, 0, 0, 'x'))
	f.Add([]byte("\x00\nx"))
	f.Fuzz(func(t *testing.T, log []byte) {
		read := newTable()
		if read.readFrom(bytes.NewReader(log)) != nil {
			return
		}
		read.findContents()
		if rest := log[read.end:]; read.end > 0 && (len(bytes.Trim(rest, "\x00")) > 0 || log[read.end-1] == 0) {
			t.Fatalf("it ends at %d, with %q behind", read.end, rest)
		}
		if read.end > 0 && read.endsLine != (log[read.end-1] == '\n') {
			t.Fatalf("it ends a line: %v", read.endsLine)
		}
	})
}

func TestLogGoesOnBeforeTheZerosBehindIt(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1", "b": "2"})
	b.unlink("/a")
	if b.journal.room <= b.journal.size {
		t.Fatalf("no room behind the log: it has %d bytes of %d", b.journal.size, b.journal.room)
	}
	size := b.journal.size
	for _, tail := range []string{strings.Repeat("\x00", 5000), "torn" + strings.Repeat("\x00", 3*lineMax)} {
		b.changeLog(func(log []byte) []byte { return append(log, tail...) })
		if got := b.journal.size; got < size || got > size+100 {
			t.Errorf("behind %d bytes and zeros the log goes on at %d", size, got)
		}
	}
	b.unlink("/b")
	b.reopen()
	for _, p := range []vpath.Path{"/a", "/b"} {
		if base, err := b.Base(p); err != nil || base == nil {
			t.Errorf("base of %s = %v, %v", p, base, err)
		}
	}
}

func TestAContentNeverPassesForRecords(t *testing.T) {
	forged := appendRecord(nil, baseRecord("/victim", someBase))
	b := newBench(t, map[string]string{"a": "1\n" + string(forged), "victim": "2"})
	b.write("/a", "new")
	b.changeLog(func(log []byte) []byte {
		at := bytes.Index(log, forged[:len(forged)-1])
		if at < 0 {
			t.Fatal("the log has no forged record")
		}
		return append(append(log[:at:at], forged...), log[at+len(forged)-1:]...)[:len(log)]
	})
	// What precedes the forged line makes it part of a damaged one.
	if base, err := b.Base("/victim"); err != nil || base != nil {
		t.Errorf("base of the victim = %+v, %v", base, err)
	}
	b.changeLog(func(log []byte) []byte { // the block before it is lost
		at := bytes.Index(log, forged)
		return append(bytes.Repeat([]byte{0}, at), log[at:]...)
	})
	if base, err := b.Base("/victim"); err != nil || base != nil {
		t.Errorf("behind a lost block, base of the victim = %+v, %v", base, err)
	}
}

func TestLogThatLostItsHeaderIsMadeAnew(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1", "b": "2"})
	b.unlink("/a")
	for _, damage := range []func([]byte) []byte{
		func(log []byte) []byte {
			return append(bytes.Repeat([]byte{0}, len(journalHeader)), log[len(journalHeader):]...)
		},
		func([]byte) []byte { return make([]byte, roomMin) },
		func([]byte) []byte { return []byte(journalHeader[:7]) },
	} {
		b.changeLog(damage)
		b.write("/b", "new")
		b.unlink("/b")
		b.reopen()
		if got := b.baseText("/b"); got != "2" {
			t.Errorf("recorded content of b = %q", got)
		}
		must(t, b.DropAll())
	}
}

func TestCompactingDropsContentsThatNothingHas(t *testing.T) {
	long := strings.Repeat("y", inLogMax)
	files := map[string]string{"kept": long}
	for i := range 2 * compactSlackBytes / inLogMax {
		files["dir/"+strings.Repeat("n", i+1)] = string(rune('A'+i%26)) + strings.Repeat("z", inLogMax-1-i)
	}
	b := newBench(t, files)
	b.write("/kept", "new")
	b.removeAll("/dir")
	must(t, b.Drop("/dir"))
	for name := range files {
		if name != "kept" {
			b.write("/"+name, "new")
			must(t, b.Drop(vpath.Path("/"+name)))
		}
	}
	if b.journal.size < compactSlackBytes {
		t.Fatalf("the log has only %d bytes", b.journal.size)
	}
	b.reopen()
	if b.journal.size > 2*inLogMax {
		t.Errorf("the log still has %d bytes", b.journal.size)
	}
	if got := b.baseText("/kept"); got != long {
		t.Errorf("of the content that is still recorded %d bytes are left", len(got))
	}
}
