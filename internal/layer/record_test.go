package layer

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

var someBase = Base{
	Dev: 1, Ino: 1 << 63, Size: 5, Mode: unix.S_IFREG | 0o644, Nlink: 2,
	Mtime: unix.Timespec{Sec: -1, Nsec: 999}, Ctime: unix.Timespec{Sec: 2},
	SHA256: bytes.Repeat([]byte{7}, 32), content: strings.Repeat("07", 32),
}

func TestRecordsAreLossless(t *testing.T) {
	tests := []struct {
		name string
		r    record
	}{
		{"a file with its content", baseRecord("/a b\n\xff", someBase)},
		{"the root without content", baseRecord(vpath.Root, Base{Mode: unix.S_IFDIR | 0o755})},
		{"a content taken later", record{kind: recordContent, path: "/a ", base: someBase}},
		{"a dropped path", record{kind: recordDrop, path: "/x y "}},
		{"a number", record{kind: recordAlias, ino: 3, alias: inodeAlias{birth: -4, shown: 1 << 63}}},
		{"a number that is gone", record{kind: recordUnalias, ino: 3}},
		{"a content", contentRecord(&Base{SHA256: someBase.SHA256, text: []byte("a\nb\\n\x00 ")})},
		{"an empty content", contentRecord(&Base{SHA256: someBase.SHA256})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			line := appendRecord(nil, tt.r)
			got, ok := parseRecord(line)
			if diff := cmp.Diff(tt.r, got, cmp.AllowUnexported(record{}, Base{}, inodeAlias{}, span{})); !ok || diff != "" {
				t.Errorf("parsed %v (-want +got):\n%s", ok, diff)
			}
			for i := range line {
				if _, ok := parseRecord(line[:i]); ok {
					t.Errorf("a line torn after %d bytes is taken for a record", i)
				}
			}
		})
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(appendRecord(nil, baseRecord("/a", someBase)))
	f.Add(appendRecord(nil, record{kind: recordAlias, ino: 1}))
	f.Add(appendRecord(nil, contentRecord(&Base{SHA256: someBase.SHA256, text: []byte("a\n")})))
	f.Add([]byte("00000000 b 1\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, ok := parseRecord(line)
		if !ok {
			return
		}
		again, ok := parseRecord(appendRecord(nil, r))
		if diff := cmp.Diff(r, again, cmp.AllowUnexported(record{}, Base{}, inodeAlias{}, span{})); !ok || diff != "" {
			t.Fatalf("written again it reads differently:\n%s", diff)
		}
	})
}

func TestLogSurvivesATornLine(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1", "b": "2"})
	b.unlink("/a")
	b.close()
	log := filepath.Join(b.dir, journalName)
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
	must(t, os.Remove(filepath.Join(b.dir, journalName)))
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
	must(t, os.WriteFile(filepath.Join(b.dir, journalName), []byte("agentfense-base 1\n"), 0o600))
	b.o.Source = openSourceFile(t, b.source)
	defer b.o.Source.Close()
	_, err := Open(b.o)
	if !fault.Is(err, fault.Unsupported) {
		t.Errorf("Open = %v, want Unsupported", err)
	}
}

func TestLogIsCompacted(t *testing.T) {
	b := newBench(t, map[string]string{"a": "1", "b": "2"})
	for range 2 * compactSlack {
		must(t, b.journal.append(record{kind: recordDrop, path: "/gone"}))
	}
	b.write("/a", "new")
	must(t, b.DropAll())
	for range 2 * compactSlack {
		must(t, b.journal.append(record{kind: recordDrop, path: "/gone"}))
	}
	b.write("/b", "new")
	shown := b.lookup("/b").Ino
	b.reopen()
	if b.journal.size > 4096 {
		t.Errorf("the log has %d bytes after Open", b.journal.size)
	}
	base, err := b.Base("/b")
	must(t, err)
	f, err := b.BaseContent(base)
	must(t, err)
	defer f.Close()
	if content, err := readContent(int(f.Fd()), 10); err != nil || string(content) != "2" {
		t.Errorf("recorded content = %q, %v, want 2", content, err)
	}
	if got := b.lookup("/b").Ino; got != shown {
		t.Errorf("inode number %d became %d", shown, got)
	}
}

func TestDamagedContentIsNotUsed(t *testing.T) {
	b := newBench(t, map[string]string{"short": "one", "long": strings.Repeat("1", inLogMax+1)})
	damage := map[string]func(base *Base) error{
		"/short": func(base *Base) error {
			log, err := os.OpenFile(filepath.Join(b.dir, journalName), os.O_WRONLY, 0)
			must(t, err)
			defer log.Close()
			_, err = log.WriteAt([]byte("two"), base.at.off+base.at.len-int64(len("one\n")))
			return err
		},
		"/long": func(base *Base) error {
			return os.WriteFile(filepath.Join(b.dir, "base", base.content), []byte("two"), 0o600)
		},
	}
	for p, damage := range damage {
		b.write(p, "new")
		base, err := b.Base(vpath.Path(p))
		must(t, err)
		must(t, damage(base))
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
