package audit_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
)

func TestVerifyAcceptsWhatWasWritten(t *testing.T) {
	got, err := audit.Verify(newLog(t, everyEvent...))
	if err != nil || got.Records != uint64(len(everyEvent)) || got.Sandbox != "fix" || got.ID != "sb_0123456789abcdef" ||
		got.Gaps != 0 || got.NoHeadFile || got.Torn || got.Head.Seq != got.Records {
		t.Errorf("Verify = %+v, %v", got, err)
	}
	empty, err := audit.Verify(newLog(t))
	if err != nil || empty.Records != 0 {
		t.Errorf("Verify of an empty log = %+v, %v", empty, err)
	}
}

func TestVerifyFindsTampering(t *testing.T) {
	alien, err := os.ReadFile(newLog(t, denied(9)))
	must(t, err)

	tests := []struct {
		name   string
		change func(lines []string) []string
		want   string // in the error
	}{
		{"a record is edited", func(l []string) []string {
			l[1] = strings.Replace(l[1], "/f2", "/f9", 1)
			return l
		}, "line 2: not a record as it was written"},
		{"the last record is edited", func(l []string) []string {
			l[3] = strings.Replace(l[3], "/f4", "/f9", 1)
			return l
		}, "ends with record 3, but had 4"},
		{"a record is removed", func(l []string) []string { return slices.Delete(l, 1, 2) }, "line 2: record 3 follows record 1"},
		{"the first record is removed", func(l []string) []string { return l[1:] }, "line 1: record 2 follows record 0"},
		{"the last record is removed", func(l []string) []string { return l[:3] }, "ends with record 3, but had 4"},
		{"all records are removed", func([]string) []string { return nil }, "ends with record 0, but had 4"},
		{"two records change places", func(l []string) []string {
			l[1], l[2] = l[2], l[1]
			return l
		}, "line 2: record 3 follows record 1"},
		{"a record is there twice", func(l []string) []string { return slices.Insert(l, 1, l[1]) }, "line 3: record 2 follows record 2"},
		{"a record of another log is put in", func(l []string) []string {
			return slices.Insert(l, 0, string(alien))
		}, "line 2: record 1 follows record 1"},
		{"a record is swapped for another log's", func(l []string) []string {
			l[0] = string(alien)
			return l
		}, "line 2: record 2 was not written after the line above"},
		{"a record is cut short", func(l []string) []string {
			l[1] = l[1][:20] + "\n"
			return l
		}, "line 2: not a record"},
		{"an empty line is put in", func(l []string) []string { return slices.Insert(l, 2, "\n") }, "line 3: not a record"},
		{"the newline between two is removed", func(l []string) []string {
			l[1] = strings.TrimSuffix(l[1], "\n")
			return l
		}, "line 2: not a record"},
		{"a hash is written in capitals", func(l []string) []string {
			i := strings.LastIndex(l[1], `"hash":"`) + len(`"hash":"`)
			l[1] = l[1][:i] + strings.ToUpper(l[1][i:i+64]) + l[1][i+64:]
			return l
		}, "line 2: not a record"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := newLog(t, denied(1), denied(2), denied(3), denied(4))
			data, err := os.ReadFile(path)
			must(t, err)
			lines := tt.change(slices.Collect(strings.Lines(string(data))))
			must(t, os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600))
			_, err = audit.Verify(path)
			if !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), filepath.Dir(path)) {
				t.Errorf("Verify = %v, want Invalid with %q", err, tt.want)
			}
		})
	}
}

func TestAnyChangedByteIsFound(t *testing.T) {
	path := newLog(t, everyEvent...)
	whole, err := os.ReadFile(path)
	must(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		data := bytes.Clone(whole)
		i := rapid.IntRange(0, len(data)-2).Draw(rt, "byte") // the last newline is no loss
		data[i] ^= rapid.ByteRange(1, 255).Draw(rt, "bits")
		must(t, os.WriteFile(path, data, 0o600))
		if _, err := audit.Verify(path); !errdefs.Is(err, errdefs.Invalid) {
			rt.Fatalf("Verify with byte %d changed = %v, want Invalid", i, err)
		}
	})
}

func TestAHeadKeptElsewhereFindsMore(t *testing.T) {
	path := newLog(t, denied(1), denied(2))
	before, err := audit.Verify(path)
	must(t, err)
	kept, err := audit.ParseHead(before.Head.String())
	must(t, err)
	must(t, open(t, path).Append(denied(3)))
	if _, err := audit.Verify(path, kept); err != nil {
		t.Errorf("Verify of a log that went on = %v, want nil", err)
	}
	for _, file := range []string{path, path + ".head"} {
		must(t, os.Remove(file))
	}
	must(t, open(t, path).Append(denied(1)))
	if _, err := audit.Verify(path, kept); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("Verify of a shorter log written anew = %v, want Invalid", err)
	}
	must(t, open(t, path).Append(denied(7)))
	if _, err := audit.Verify(path, kept); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("Verify of another log written anew = %v, want Invalid", err)
	}
}

func TestWhatIsMissingAtAnAppendIsRecorded(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, path string)
		want   audit.Gap
	}{
		{"the end of the log", func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			must(t, err)
			must(t, os.Truncate(path, int64(bytes.IndexByte(data, '\n')+1)))
		}, audit.Gap{Reason: audit.GapRecordsMissing, Lost: 2}},
		{"the log", func(t *testing.T, path string) { must(t, os.Remove(path)) }, audit.Gap{Reason: audit.GapRecordsMissing, Lost: 3}},
		{"the head", func(t *testing.T, path string) { must(t, os.Remove(path+".head")) }, audit.Gap{Reason: audit.GapHeadMissing}},
		{"another log's head", func(t *testing.T, path string) {
			must(t, os.Rename(newLog(t, denied(5), denied(6), denied(7))+".head", path+".head"))
		}, audit.Gap{Reason: audit.GapHeadDiffers}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := newLog(t, denied(1), denied(2), denied(3))
			tt.change(t, path)
			must(t, open(t, path).Append(denied(4)))
			got := events(t, path)
			if !slices.Contains(got, audit.Event(tt.want)) {
				t.Errorf("events %+v, want %+v among them", got, tt.want)
			}
			if s, err := audit.Verify(path); err != nil || s.Gaps != 1 {
				t.Errorf("Verify = %+v, %v, want the gap and no error", s, err)
			}
		})
	}
}

func TestATornEndIsNoTampering(t *testing.T) {
	path := newLog(t, denied(1))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(`{"v":1,"seq":2,"ti`)
	must(t, err)
	must(t, f.Close())
	if s, err := audit.Verify(path); err != nil || !s.Torn {
		t.Errorf("Verify = %+v, %v, want Torn: nobody was told that it is written", s, err)
	}
	must(t, os.Remove(path+".head"))
	if _, err := audit.Verify(path); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("Verify without a head = %v, want Invalid: it may have been a record", err)
	}
}

func TestATornEndMayBeLongerThanAnyRecord(t *testing.T) {
	for _, size := range []int{4<<20 - 1, 4 << 20, 9 << 20} {
		path := newLog(t, denied(1))
		whole, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path, append(whole, bytes.Repeat([]byte{'x'}, size)...), 0o600))
		if s, err := audit.Verify(path); err != nil || !s.Torn {
			t.Errorf("%d bytes: Verify = %+v, %v, want Torn", size, s, err)
		}
		must(t, open(t, path).Append(denied(2)))
		if s, err := audit.Verify(path); err != nil || s.Torn || s.Gaps != 1 || s.Records != 3 {
			t.Errorf("%d bytes: Verify of the log that went on = %+v, %v, want one gap", size, s, err)
		}
		data, err := os.ReadFile(path)
		must(t, err)
		data[len(whole)+size-1] = 'y'
		must(t, os.WriteFile(path, data, 0o600))
		if _, err := audit.Verify(path); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%d bytes, the last changed: Verify = %v, want Invalid", size, err)
		}
	}
}

func TestATornPlaceCannotBeTidiedUp(t *testing.T) {
	path := newLog(t, denied(1))
	whole, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(whole, "torn"...), 0o600))
	must(t, open(t, path).Append(denied(2)))
	if _, err := audit.Verify(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	must(t, err)
	for _, other := range []string{"", "born\n"} {
		must(t, os.WriteFile(path, bytes.Replace(data, []byte("torn\n"), []byte(other), 1), 0o600))
		if _, err := audit.Verify(path); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("Verify with %q for the torn bytes = %v, want Invalid", other, err)
		}
	}
}

func TestParseHeadRefuses(t *testing.T) {
	hash := strings.Repeat("a", 64)
	for _, bad := range []string{"", "1", "1:", ":" + hash, "x:" + hash, "1:" + hash[1:], "1:" + strings.ToUpper(hash), "-1:" + hash} {
		if _, err := audit.ParseHead(bad); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("ParseHead(%q) = %v, want Invalid", bad, err)
		}
	}
}
