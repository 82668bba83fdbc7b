package layer

import (
	"testing"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// The view does not change while frozen layers are copied into the delta, also not where something
// is not copied: a process that is killed then leaves everything.
func TestSquashHidesNothingBeforeItsEnd(t *testing.T) {
	tests := []struct {
		name    string
		do      func(b *bench)
		isSpare bool // the file is not copied
	}{
		{"a directory of the source", func(*bench) {}, true},
		{"a directory made again", func(b *bench) {
			b.removeAll("/d")
			b.mkdir("/d")
		}, false},
		{"a directory made over a whiteout of a lower layer", func(b *bench) {
			b.removeAll("/d")
			must(b.t, b.Freeze())
			b.mkdir("/d")
		}, false},
		{"a directory in place of a file of a lower layer", func(b *bench) {
			b.removeAll("/d")
			b.write("/d", "file")
			must(b.t, b.Freeze())
			b.unlink("/d")
			b.mkdir("/d")
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, map[string]string{"d/f": "old", "d/g": "old"})
			tt.do(b)
			b.write("/d/f", "new")
			must(t, b.Freeze())
			q := squashing{s: b.Stack, to: b.layers[top].root, left: map[vpath.Path]bool{}, linked: map[uint64]string{}}
			must(t, q.leave([]vpath.Path{"/d/f"}, b.Stack.frozen()))
			must(t, q.all(b.Stack.frozen()))
			b.close()
			b.open()
			if got := b.read("/d/f"); got != "new" {
				t.Errorf("d/f is %q, want the new content", got)
			}
			if _, isLeft := q.left["/d/f"]; isLeft != tt.isSpare {
				t.Errorf("d/f is left out of the copy: %v, want %v", isLeft, tt.isSpare)
			}
		})
	}
}
