package outlog

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func open(t *testing.T, dir string) *Writer {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := Open(f)
	t.Cleanup(func() {
		w.Close()
		f.Close()
	})
	return w
}

// read returns what a log has, as text.
func read(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	if err := Read(context.Background(), dir, nil, func(r Record) error {
		switch {
		case r.Again:
			fmt.Fprintf(&b, "again %s %s;", r.Exec, bytes.Join(r.Argv, []byte(" ")))
		case r.Argv != nil:
			fmt.Fprintf(&b, "begin %s %s;", r.Exec, bytes.Join(r.Argv, []byte(" ")))
		case r.Exit != nil:
			fmt.Fprintf(&b, "exit %s %d;", r.Exec, r.Exit.Code)
		case r.Over:
			fmt.Fprintf(&b, "over %s;", r.Exec)
		case r.Opened:
			b.WriteString("opened;")
		case r.LostBytes > 0:
			fmt.Fprintf(&b, "lost %d;", r.LostBytes)
		default:
			fmt.Fprintf(&b, "%s %s %q;", r.Exec, r.Stream, r.Data)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("the log has\n  %s\nwant\n  %s", got, want)
	}
}

var argv = [][]byte{[]byte("make"), []byte("\xff")}

func TestACommandIsKept(t *testing.T) {
	dir := t.TempDir()
	want(t, read(t, dir), "")
	w := open(t, dir)
	want(t, read(t, dir), "")
	w.Begin("x1", argv, 2)
	out, errs := w.Stream("x1", Stdout), w.Stream("x1", Stderr)
	fmt.Fprint(out, "one\n\x00\xfe")
	fmt.Fprint(errs, "two")
	out.Close()
	w.End("x1", Exit{Code: 3})
	fmt.Fprint(errs, "late")
	errs.Close()
	w.Begin("x2", argv, 1)
	w.Cancel("x2")
	const all = "begin x1 make \xff;x1 stdout \"one\\n\\x00\\xfe\";x1 stderr \"two\";exit x1 3;x1 stderr \"late\";over x1;begin x2 make \xff;over x2;"
	want(t, read(t, dir), all)
	w.Close()
	w.Begin("x3", argv, 1)
	want(t, read(t, dir), all)
	open(t, dir)
	want(t, read(t, dir), all+"opened;")
	info, err := os.Stat(filepath.Join(dir, current))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
}

func TestALogIsBoundedAndKeepsTheEnd(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir)
	w.limit = 4096
	w.Begin("x", argv, 1)
	out := w.Stream("x", Stdout)
	for i := range 1000 {
		fmt.Fprintf(out, "line %d", i)
	}
	var total int64
	for _, name := range []string{current, previous} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > 2*w.limit || total < w.limit {
		t.Errorf("the log takes %d bytes", total)
	}
	got := read(t, dir)
	if !strings.HasPrefix(got, "again x make") || !strings.HasSuffix(got, `x stdout "line 999";`) {
		t.Errorf("the log has %s", got)
	}
	if n := strings.Count(got, "x stdout"); n < 30 {
		t.Errorf("%d pieces are kept", n)
	}
}

func TestWhatACrashCutShortIsSkipped(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir)
	w.Begin("x", argv, 1)
	w.Close()
	f, err := os.OpenFile(filepath.Join(dir, current), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"time":"2026-`)
	f.Close()
	w = open(t, dir)
	w.Begin("y", argv, 1)
	want(t, read(t, dir), "begin x make \xff;opened;begin y make \xff;")
}

func TestAFullDiskIsToldOf(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir)
	w.Begin("x", argv, 1)
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	room := w.file
	w.file = full
	fmt.Fprint(w.Stream("x", Stdout), "12345")
	fmt.Fprint(w.Stream("x", Stdout), "678")
	full.Close()
	w.file = room
	fmt.Fprint(w.Stream("x", Stdout), "kept")
	want(t, read(t, dir), "begin x make \xff;lost 8;x stdout \"kept\";")
}

func TestNoLinkIsFollowed(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.Symlink(elsewhere, filepath.Join(dir, current)); err != nil {
		t.Fatal(err)
	}
	w := open(t, dir)
	w.Begin("x", argv, 1)
	if _, err := os.Stat(elsewhere); !os.IsNotExist(err) {
		t.Errorf("the target of the link is there: %v", err)
	}
	if err := Read(context.Background(), dir, nil, func(Record) error { return nil }); err == nil {
		t.Error("a link is read")
	}
}

func TestFollowEndsWithTheLastCommand(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir)
	w.limit = 1024
	w.Begin("x", argv, 1)
	out := w.Stream("x", Stdout)
	var got strings.Builder
	n := 0
	alive := func() bool { // each look finds more, over several files
		if n < 100 {
			fmt.Fprintf(out, "%d,", n)
		} else if n == 100 {
			w.End("x", Exit{})
			out.Close()
		}
		n++
		return true
	}
	looks := func(r Record) error {
		got.Write(r.Data)
		return nil
	}
	followPause = 0
	if err := Read(context.Background(), dir, alive, looks); err != nil {
		t.Fatal(err)
	}
	if parts := strings.Split(got.String(), ","); len(parts) != 101 || parts[99] != "99" {
		t.Errorf("followed %d pieces: %s", len(parts), got.String())
	}
}

func TestFollowEndsWithTheWriter(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir)
	w.Begin("x", argv, 1)
	if err := Read(context.Background(), dir, func() bool { return false }, func(Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	alive := func() bool { cancel(); return true }
	if err := Read(ctx, dir, alive, func(Record) error { return nil }); !errdefs.Is(err, errdefs.Canceled) {
		t.Errorf("a canceled follow: %v", err)
	}
}
