package portable_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/portable"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// newHollow makes a sandbox that made a file with a hole.
func newHollow(t *testing.T, size int64) *record.Sandbox {
	return newSandbox(t, nil, func(s *layer.Stack) {
		write(t, s, "/hollow", "begin")
		_, err := s.SetAttr("/hollow", layer.SetAttr{Size: &size})
		must(t, err)
	})
}

// An archive has zeros in the place of holes. One for which there is no room is refused before it
// is written, with the file and the size. A database stores no holes.
func TestAFileOfHoles(t *testing.T) {
	box := newHollow(t, 2<<40)
	for name, export := range formats {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			result, err := export(t.Context(), box, filepath.Join(dir, "out"), portable.Options{})
			if name == "agentfs" {
				if err != nil || result.Entries != 1 {
					t.Errorf("%+v, %v, want one entry", result, err)
				}
				return
			}
			if !errdefs.Is(err, errdefs.Exhausted) || !strings.Contains(err.Error(), "would have 2199023255552 bytes") || !strings.Contains(err.Error(), "/hollow") {
				t.Errorf("%v, want Exhausted with the file and its size", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// What is stored in the place of large holes is noted.
func TestHolesThatBecomeZerosAreNoted(t *testing.T) {
	result, err := portable.Tar(t.Context(), newHollow(t, 65<<20), filepath.Join(t.TempDir(), "out"), portable.Options{})
	if err != nil || len(result.Notes) != 1 || !strings.HasPrefix(result.Notes[0], "/hollow has 68") {
		t.Errorf("%q, %v, want a note about the file", result.Notes, err)
	}
}
