package layer

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
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

// someBase is any Base.
var someBase = Base{
	Dev: 1, Ino: 1 << 63, Size: 5, Mode: unix.S_IFREG | 0o644, Nlink: 2,
	Mtime: unix.Timespec{Sec: -1, Nsec: 999}, Ctime: unix.Timespec{Sec: 2},
	SHA256: bytes.Repeat([]byte{7}, 32),
}

const (
	logName   = "base.log"
	logHeader = "agentfense-base 2\n"
)

// logSize is the size of the log in bytes, without the preallocated zeros.
func (b *bench) logSize() int64 {
	b.t.Helper()
	log, err := os.ReadFile(filepath.Join(b.dir, logName))
	must(b.t, err)
	return int64(len(bytes.TrimRight(log, "\x00")))
}

// forge returns the line of a record.
func forge(t *testing.T, r journal.Record) []byte {
	t.Helper()
	b := newBench(t, nil)
	must(t, b.journal.Append(r))
	b.close()
	log, err := os.ReadFile(filepath.Join(b.dir, logName))
	must(t, err)
	return bytes.TrimPrefix(log, []byte(logHeader))
}

// changeLog replaces the log by the result of change, while the stack is closed.
func (b *bench) changeLog(change func(log []byte) []byte) {
	b.t.Helper()
	b.close()
	name := filepath.Join(b.dir, logName)
	log, err := os.ReadFile(name)
	must(b.t, err)
	must(b.t, os.WriteFile(name, change(log), 0o600))
	b.open()
}

func TestContentsAreKeptToTheByte(t *testing.T) {
	contents := map[string]string{
		"empty": "", "line": "text\n", "escapes": "\\n\\\\n\n\\0\x00\\", "binary": "\x00\xff\n\x00",
		"longest in the log": strings.Repeat("\n", journal.InlineMax), "file of its own": strings.Repeat("a\n", journal.InlineMax/2) + "b",
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
	if got := b.logSize(); got > 15_000 {
		t.Errorf("the log has %d bytes", got)
	}
	if got := b.baseText("/c"); len(got) != 9999 {
		t.Errorf("recorded are %d bytes", len(got))
	}
}

func TestRecordsOfASourceFileAreDurableBeforeItsCopyShows(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		b := newBench(t, map[string]string{"a": "1", "b": "2"})
		must(t, b.journal.Close())
		var err error
		b.journal, _, err = journal.Open(journal.Options{
			Home: b.home, Work: b.work, Temp: b.temp, Quota: &b.quota, InPlace: inPlace,
		})
		must(t, err)
		for _, p := range []vpath.Path{"/a", "/b"} {
			_, err := b.CopyUp(p)
			must(t, err)
			if n := b.journal.Pending(); n != 0 {
				t.Errorf("in place %t: after the copy-up of %s %d bytes are not durable", inPlace, p, n)
			}
		}
	}
}

func TestLogGoesOnBeforeTheZerosBehindIt(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1", "b": "2"})
	b.unlink("/a")
	size := b.logSize()
	if file, err := os.Stat(filepath.Join(b.dir, logName)); err != nil || file.Size() <= size {
		t.Fatalf("no zeros behind the log of %d bytes: %v, %v", size, file, err)
	}
	for _, tail := range []string{strings.Repeat("\x00", 5000), "torn" + strings.Repeat("\x00", 3*(256<<10))} {
		b.changeLog(func(log []byte) []byte { return append(log, tail...) })
		if got := b.logSize(); got < size || got > size+100 {
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
	forged := forge(t, journal.BaseRecord("/victim", someBase))
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
			return append(bytes.Repeat([]byte{0}, len(logHeader)), log[len(logHeader):]...)
		},
		func([]byte) []byte { return make([]byte, 16<<10) },
		func([]byte) []byte { return []byte(logHeader[:7]) },
	} {
		b.changeLog(damage)
		b.write("/b", "new")
		b.unlink("/b")
		b.reopen()
		if got := b.baseText("/b"); got != "2" {
			t.Errorf("recorded content of b = %q", got)
		}
		must(t, b.Reset())
	}
}

func TestCompactingDropsContentsThatNothingHas(t *testing.T) {
	const slackBytes = 4 << 20 // a log with less waste is not compacted
	long := strings.Repeat("y", journal.InlineMax)
	files := map[string]string{"kept": long}
	for i := range 2 * slackBytes / journal.InlineMax {
		files["dir/"+strings.Repeat("n", i+1)] = string(rune('A'+i%26)) + strings.Repeat("z", journal.InlineMax-1-i)
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
	if b.logSize() < slackBytes {
		t.Fatalf("the log has only %d bytes", b.logSize())
	}
	b.reopen()
	if b.logSize() > 2*journal.InlineMax {
		t.Errorf("the log still has %d bytes", b.logSize())
	}
	if got := b.baseText("/kept"); got != long {
		t.Errorf("of the content that is still recorded %d bytes are left", len(got))
	}
}

func TestLogSurvivesATornLine(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1", "b": "2"})
	b.unlink("/a")
	b.close()
	log := filepath.Join(b.dir, logName)
	text, err := os.ReadFile(log)
	must(t, err)
	must(t, os.WriteFile(log, append(text, "0badc0de b 1 2"...), 0o600))
	b.open()
	b.unlink("/b")
	b.reopen()
	for _, p := range []vpath.Path{"/a", "/b"} {
		if base, err := b.Base(p); err != nil || base == nil {
			t.Errorf("base of %s = %v, %v", p, base, err)
		}
	}
}

func TestLostLogIsAConflict(t *testing.T) {
	b := newBench(t, map[string]string{"deleted": "1", "modified": "2"})
	b.unlink("/deleted")
	b.write("/modified", "new")
	b.close()
	must(t, os.Remove(filepath.Join(b.dir, logName)))
	b.open()
	changes, err := b.Changes()
	must(t, err)
	if len(changes) != 2 || changes[0].Base != nil {
		t.Fatalf("a whiteout without a record has the base %+v", changes[0].Base)
	}
	for _, c := range changes {
		if ok, err := b.SourceMatches(c.Path, c.Base); ok || err != nil {
			t.Errorf("%s matches the source though nothing is recorded: %v", c.Path, err)
		}
	}
}

func TestLogOfAnotherVersionIsRefused(t *testing.T) {
	b := newBench(t, nil)
	b.close()
	must(t, os.WriteFile(filepath.Join(b.dir, logName), []byte("agentfense-base 1\n"), 0o600))
	b.o.Source = openSourceFile(t, b.source)
	defer b.o.Source.Close()
	_, err := Open(b.o)
	if !errdefs.Is(err, errdefs.Unsupported) {
		t.Errorf("Open = %v, want Unsupported", err)
	}
}

func TestLogIsCompacted(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1", "b": "2"})
	for range 2200 {
		must(t, b.journal.Append(journal.DropRecord("/gone")))
	}
	b.write("/a", "new")
	must(t, b.Reset())
	for range 2200 {
		must(t, b.journal.Append(journal.DropRecord("/gone")))
	}
	b.write("/b", "new")
	shown := b.lookup("/b").Ino
	b.reopen()
	if b.logSize() > 4096 {
		t.Errorf("the log has %d bytes after Open", b.logSize())
	}
	base, err := b.Base("/b")
	must(t, err)
	f, err := b.BaseContent(base)
	must(t, err)
	defer f.Close()
	if content, err := safefs.ReadRange(int(f.Fd()), 0, 10); err != nil || string(content) != "2" {
		t.Errorf("recorded content = %q, %v, want 2", content, err)
	}
	if got := b.lookup("/b").Ino; got != shown {
		t.Errorf("inode number %d became %d", shown, got)
	}
}

func TestDamagedContentIsNotUsed(t *testing.T) {
	b := newBench(t, map[string]string{"short": "one", "long": strings.Repeat("1", journal.InlineMax+1)})
	damage := map[string]func() error{
		"/short": func() error {
			name := filepath.Join(b.dir, logName)
			log, err := os.ReadFile(name)
			must(t, err)
			return os.WriteFile(name, bytes.Replace(log, []byte(" one\n"), []byte(" two\n"), 1), 0o600)
		},
		"/long": func() error {
			kept, err := os.ReadDir(filepath.Join(b.dir, "base"))
			must(t, err)
			return os.WriteFile(filepath.Join(b.dir, "base", kept[0].Name()), []byte("two"), 0o600)
		},
	}
	for p, damage := range damage {
		b.write(p, "new")
		base, err := b.Base(vpath.Path(p))
		must(t, err)
		must(t, damage())
		if _, err := b.BaseContent(base); !errors.Is(err, unix.EIO) {
			t.Errorf("damaged content of %s: %v, want EIO", p, err)
		}
	}
}

func openSourceFile(t testing.TB, path string) *os.File {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	return os.NewFile(uintptr(fd), "source")
}
