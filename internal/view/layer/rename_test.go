package layer

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestRenameOfADirectoryTakesWhatIsVisible(t *testing.T) {
	b := newBench(t, map[string]string{"old/a": "a", "old/sub/b": "b", "old/secret": "s", "old/sub/key.pem": "k"})
	visible := func(p vpath.Path) bool {
		return p.Base() != "secret" && !strings.HasSuffix(string(p), ".pem")
	}
	number := b.lookup("/old").Ino
	_, err := b.Rename("/old", "/new", RenameOptions{Visible: visible})
	must(t, err)
	if got := b.names("/new"); !slices.Equal(got, []string{"a", "sub"}) {
		t.Errorf("the moved directory shows %q", got)
	}
	if got := b.names("/new/sub"); !slices.Equal(got, []string{"b"}) {
		t.Errorf("its subdirectory shows %q", got)
	}
	if got := b.lookup("/new").Ino; got != number {
		t.Errorf("its number was %d and is %d", number, got)
	}
	want := []string{
		"c /new", "c /new/a", "c /new/sub", "c /new/sub/b",
		"d /old", "d /old/a", "d /old/secret ?", "d /old/sub", "d /old/sub/b", "d /old/sub/key.pem ?",
	}
	if got := b.changes(); !slices.Equal(got, want) {
		t.Errorf("changes = %q, want %q", got, want)
	}
}

func TestRenameOfADirectoryIsBounded(t *testing.T) {
	files := map[string]string{}
	for i := range 10 {
		files[fmt.Sprintf("dir/f%d", i)] = strings.Repeat("x", 4096)
	}
	tests := []struct {
		name string
		o    RenameOptions
		want error
	}{
		{"too many entries", RenameOptions{MaxEntries: 9}, unix.EXDEV},
		{"too many bytes", RenameOptions{MaxBytes: 9 * 4096}, unix.EXDEV},
		{"just within", RenameOptions{MaxEntries: 10, MaxBytes: 10 * 4096}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, files)
			_, err := b.Rename("/dir", "/moved", tt.o)
			wantErr(t, "rename", err, tt.want)
			if tt.want != nil {
				if got := b.changes(); len(got) != 0 {
					t.Errorf("refused, it changed %q", got)
				}
			}
		})
	}
}

func TestWhatCannotMoveIsCrossDevice(t *testing.T) {
	b := newBench(t, map[string]string{"dir/a": ""})
	b.write("/dir/mine", "written, then hidden")
	_, err := b.Rename("/dir", "/moved", RenameOptions{Visible: func(p vpath.Path) bool { return p.Base() != "mine" }})
	wantErr(t, "rename that would leave something of the delta behind", err, unix.EXDEV)
}

func TestRenameReplacesADirectoryThatShowsNothing(t *testing.T) {
	for _, from := range []string{"/made", "/source"} {
		t.Run(from, func(t *testing.T) {
			b := newBench(t, map[string]string{"source/a": "a", "target/gone": "", "target/secret": "s"})
			b.mkdir("/made")
			b.write("/made/a", "a")
			_, err := b.Rename(vpath.Path(from), "/target", RenameOptions{})
			wantErr(t, "rename over a directory with content", err, unix.ENOTEMPTY)
			b.unlink("/target/gone")
			_, err = b.Rename(vpath.Path(from), "/target", RenameOptions{Visible: func(p vpath.Path) bool { return p.Base() != "secret" }})
			must(t, err)
			b.reopen()
			if got := b.names("/target"); !slices.Equal(got, []string{"a"}) {
				t.Errorf("the target shows %q", got)
			}
			if _, err := os.Stat(b.src("target/secret")); err != nil {
				t.Errorf("the source's hidden file: %v", err)
			}
		})
	}
}

func TestRenameIntoItselfIsRefused(t *testing.T) {
	b := newBench(t, map[string]string{"dir/sub/x": "", "file": ""})
	for _, tt := range []struct {
		old, p vpath.Path
		o      RenameOptions
		want   error
	}{
		{"/dir", "/dir/sub/new", RenameOptions{}, unix.EINVAL},
		{"/dir/sub", "/dir", RenameOptions{Exchange: true}, unix.EINVAL},
		{"/dir/sub", "/dir", RenameOptions{}, unix.ENOTEMPTY},
		{"/", "/new", RenameOptions{}, unix.EBUSY},
		{"/file", "/", RenameOptions{}, unix.EBUSY},
		{"/file", "/file", RenameOptions{}, nil},
		{"/file", "/file", RenameOptions{NoReplace: true}, unix.EEXIST},
		{"/absent", "/absent", RenameOptions{}, unix.ENOENT},
		{"/file", "/absent", RenameOptions{Exchange: true}, unix.ENOENT},
	} {
		_, err := b.Rename(tt.old, tt.p, tt.o)
		wantErr(t, fmt.Sprintf("rename %s to %s", tt.old, tt.p), err, tt.want)
	}
}
