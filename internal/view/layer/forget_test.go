package layer

import (
	"slices"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// What the policy hides stays in the source when the sandbox removes its directory, even if
// the sandbox changed it before the policy hid it.
func TestHiddenChildrenAreForgottenWithTheirDirectory(t *testing.T) {
	visible := func(p vpath.Path) bool { return !p.Within("/dir/hidden") && !p.Within("/dir/.env") }
	ends := map[string]func(b *bench){
		"rmdir": func(b *bench) {
			must(t, b.Rmdir("/dir", func(name string) bool { return visible(vpath.Path("/dir").Child(name)) }))
		},
		"a rename in its place": func(b *bench) {
			b.mkdir("/new")
			_, err := b.Rename("/new", "/dir", RenameOptions{Visible: visible})
			must(t, err)
			must(t, b.Rmdir("/dir", nil))
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, map[string]string{"dir/a": "1", "dir/.env": "1", "dir/hidden/gone": "1", "dir/hidden/written": "1", "dir/hidden/untouched": "1"})
			b.write("/dir/.env", "2")
			b.write("/dir/hidden/written", "2")
			b.unlink("/dir/hidden/gone")
			b.unlink("/dir/a")
			end(b)
			b.reopen()
			want := []string{
				"d /dir", "d /dir/.env ?", "d /dir/a", "d /dir/hidden ?",
				"d /dir/hidden/gone", "d /dir/hidden/untouched ?", "d /dir/hidden/written ?",
			}
			if got := b.changes(); !slices.Equal(got, want) {
				t.Errorf("changes = %q, want %q", got, want)
			}
		})
	}
}

func TestDropBelowAFileKeepsTheRecordsThere(t *testing.T) {
	b := newBench(t, map[string]string{"dir/sub/a": "1", "dir/sub/b": "1"})
	b.removeAll("/dir")
	b.write("/dir", "now a file")
	must(t, b.Drop("/dir/sub/a"))
	b.reopen()
	want := []string{"m /dir", "d /dir/sub", "d /dir/sub/a ?", "d /dir/sub/b"}
	if got := b.changes(); !slices.Equal(got, want) {
		t.Errorf("changes = %q, want %q", got, want)
	}
}
