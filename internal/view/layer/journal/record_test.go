package journal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

var someBase = Base{
	Dev: 1, Ino: 1 << 63, Size: 5, Mode: unix.S_IFREG | 0o644, Nlink: 2,
	Mtime: unix.Timespec{Sec: -1, Nsec: 999}, Ctime: unix.Timespec{Sec: 2},
	SHA256: bytes.Repeat([]byte{7}, 32), content: strings.Repeat("07", 32),
}

func TestRecordsAreLossless(t *testing.T) {
	tests := []struct {
		name string
		r    Record
	}{
		{"a file with its content", BaseRecord("/a b\n\xff", someBase)},
		{"the root without content", BaseRecord(vpath.Root, Base{Mode: unix.S_IFDIR | 0o755})},
		{"a content taken later", LaterBaseRecord("/a ", someBase)},
		{"a dropped path", DropRecord("/x y ")},
		{"a number", AliasRecord(3, Alias{Birth: -4, Shown: 1 << 63})},
		{"a number that is gone", UnaliasRecord(3)},
		{"a content", contentRecord(&Base{SHA256: someBase.SHA256, text: []byte("a\nb\\n\x00 ")})},
		{"an empty content", contentRecord(&Base{SHA256: someBase.SHA256})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			line := appendRecord(nil, tt.r)
			got, ok := parseRecord(line)
			if diff := cmp.Diff(tt.r, got, cmp.AllowUnexported(Record{}, Base{}, Alias{}, Span{})); !ok || diff != "" {
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
	f.Add(appendRecord(nil, BaseRecord("/a", someBase)))
	f.Add(appendRecord(nil, AliasRecord(1, Alias{})))
	f.Add(appendRecord(nil, contentRecord(&Base{SHA256: someBase.SHA256, text: []byte("a\n")})))
	f.Add([]byte("00000000 b 1\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, ok := parseRecord(line)
		if !ok {
			return
		}
		again, ok := parseRecord(appendRecord(nil, r))
		if diff := cmp.Diff(r, again, cmp.AllowUnexported(Record{}, Base{}, Alias{}, Span{})); !ok || diff != "" {
			t.Fatalf("written again it reads differently:\n%s", diff)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
