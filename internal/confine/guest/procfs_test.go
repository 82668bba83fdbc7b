package guest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStat(t *testing.T) {
	tests := []struct {
		name string
		line string
		want stat
		ok   bool
	}{
		{
			"a plain name", "7 (sh) S 1 7 7 34816 9 4194560 1 0 2 0 1 2 3 4 20 0 1 0 987 2 3",
			stat{parent: 1, foreground: 9, started: 987},
			true,
		},
		{
			"a name that tries to look like fields", "7 (x) S 99 1) Z 1 7 7 0 -1 0 1 0 2 0 1 2 3 4 20 0 1 0 4294967299 2",
			stat{parent: 1, foreground: -1, zombie: true, started: 3},
			true,
		},
		{
			"a process whose first thread has ended", "7 (sh) Z 1 7 7 0 -1 0 1 0 2 0 1 2 3 4 20 0 2 0 987 2 3",
			stat{parent: 1, foreground: -1, started: 987},
			true,
		},
		{"a line cut short", "7 (sh) S 1 7", stat{}, false},
		{"a line cut before the start time", "7 (sh) S 1 7 7 34816 9 4194560 1 0 2", stat{}, false},
		{"nothing", "", stat{}, false},
		{"no numbers", "7 (sh) S a b c d e f", stat{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat([]byte(tt.line))
			if got != tt.want || (err == nil) != tt.ok {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestChildrenAreFound(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var got []int
	err := new(procReader).children(os.Getpid(), func(pid int) error {
		got = append(got, pid)
		return nil
	})
	if diff := cmp.Diff([]int{cmd.Process.Pid}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

func TestOnlyUnchangedFileMappingsAreDropped(t *testing.T) {
	smaps := `00400000-00500000 r-xp 00000000 fe:00 17 /bin/a
Rss:                 100 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00500000-00600000 r--p 00100000 fe:00 17 /bin/a (relocated)
Anonymous:             4 kB
00600000-00700000 rw-p 00200000 fe:00 17 /bin/a
Anonymous:             0 kB
00700000-00800000 r--p 00000000 00:00 0 [vvar]
Anonymous:             0 kB
00800000-00900000 r--p 00300000 fe:00 17 /bin/a
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x500000}, {0x800000, 0x900000}}
	var got []mapping
	unchangedMappings(strings.NewReader(smaps), func(m mapping) { got = append(got, m) })
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDroppedTextComesBack(t *testing.T) {
	DropText()
	if got, err := parseStat([]byte("7 (sh) S 1 7 7 0 9 0 0 0 0 0 0 0 0 0 0 0 0 0 5 0")); err != nil || got != (stat{parent: 1, foreground: 9, started: 5}) {
		t.Errorf("got %+v, %v", got, err)
	}
}
