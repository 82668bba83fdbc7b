package apply_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
)

func TestApplyResolvesConflicts(t *testing.T) {
	tests := []struct {
		name       string
		how        conflict.Resolution
		source     tree
		agent      func(a *agent)
		person     func(t *testing.T, dir string)
		want       tree
		left       []string
		overwrites bool
		growth     changes.SizeDelta
	}{
		{
			"the sandbox's version wins where both changed a file", conflict.Overwrite,
			tree{"f": "old"},
			func(a *agent) { a.write("/f", "sandbox's") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "person's own") },
			tree{"f": "sandbox's", "other": "new"},
			nil, true,
			changes.SizeDelta{Files: 1, Bytes: 9 - 12 + 3},
		},
		{
			"a file that was deleted outside is there again", conflict.Overwrite,
			tree{"f": "old"},
			func(a *agent) { a.write("/f", "new") },
			func(t *testing.T, dir string) { os.Remove(dir + "/f") },
			tree{"f": "new", "other": "new"},
			nil, true,
			changes.SizeDelta{Files: 2, Bytes: 6},
		},
		{
			"a deletion wins over a change", conflict.Overwrite,
			tree{"f": "old"},
			func(a *agent) { a.remove("/f") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "newer") },
			tree{"other": "new"},
			nil, true,
			changes.SizeDelta{Files: 0, Bytes: 3 - 5},
		},
		{
			"a file that both made is the sandbox's", conflict.Overwrite,
			tree{},
			func(a *agent) { a.write("/f", "new") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "person's") },
			tree{"f": "new", "other": "new"},
			nil, true,
			changes.SizeDelta{Files: 1, Bytes: 3 + 3 - 8},
		},
		{
			"a directory full of another's work gives way to nothing", conflict.Overwrite,
			tree{},
			func(a *agent) { a.write("/f", "new") },
			func(t *testing.T, dir string) { os.Mkdir(dir+"/f", 0o755); write(t, dir+"/f/work", "theirs") },
			tree{"f/": "", "f/work": "theirs", "other": "new"},
			[]string{"A /f"},
			false,
			changes.SizeDelta{Files: 1, Bytes: 3},
		},
		{
			"with leave the source stays where it changed", conflict.Leave,
			tree{"f": "old"},
			func(a *agent) { a.write("/f", "sandbox's") },
			func(t *testing.T, dir string) { write(t, dir+"/f", "person's") },
			tree{"f": "person's", "other": "new"},
			[]string{"M /f"},
			false,
			changes.SizeDelta{Files: 1, Bytes: 3},
		},
		{
			"with leave a deleted directory stays that holds a change", conflict.Leave,
			tree{"d/f": "old", "d/g": "old"},
			func(a *agent) { a.removeAll("/d") },
			func(t *testing.T, dir string) { write(t, dir+"/d/f", "person's") },
			tree{"d/": "", "d/f": "person's", "other": "new"},
			[]string{"D /d/f"},
			false,
			changes.SizeDelta{Files: 0, Bytes: 0},
		},
		{
			"directories come, go, move and change their mode", conflict.Overwrite,
			tree{"old/d/f": "x", "full/": "", "kept/f": "x", "move/a/b": "x", "turn/": ""},
			func(a *agent) {
				a.mkdir("/new")
				a.mkdir("/new/d")
				a.removeAll("/old")
				a.removeAll("/full")
				a.write("/full", "x")
				a.chmod("/kept", 0o750)
				a.rename("/move", "/moved")
				a.removeAll("/turn")
				a.mkdir("/turn")
			},
			func(t *testing.T, dir string) { os.Mkdir(dir+"/new", 0o755) },
			tree{"new/": "", "new/d/": "", "full": "x", "kept/": " (drwxr-x---)", "kept/f": "x", "moved/": "", "moved/a/": "", "moved/a/b": "x", "turn/": "", "other": "new"},
			nil, false,
			changes.SizeDelta{Files: 1, Bytes: 3},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.source)
			b.agent(func(a *agent) {
				tt.agent(a)
				a.write("/other", "new")
			})
			tt.person(t, b.dir)
			tt.growth.Dirs = -dirsIn(t, b.dir)
			r, err := apply.Changes(t.Context(), b.box, apply.Options{OnConflict: tt.how})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, snapshot(t, b.dir)); diff != "" {
				t.Errorf("source (-want +got):\n%s", diff)
			}
			if left := b.changes(); !slices.Equal(left, tt.left) {
				t.Errorf("left in the delta %q, want %q", left, tt.left)
			}
			tt.growth.Dirs += dirsIn(t, b.dir)
			overwrote := false
			for _, p := range r.Paths {
				overwrote = overwrote || p.Overwrote
			}
			if overwrote != tt.overwrites || r.Growth != tt.growth {
				t.Errorf("overwrote %v, growth %+v, want %v, %+v; %+v", overwrote, r.Growth, tt.overwrites, tt.growth, r.Paths)
			}
		})
	}
}

func dirsIn(t *testing.T, dir string) (n int64) {
	t.Helper()
	for name := range snapshot(t, dir) {
		if strings.HasSuffix(name, "/") {
			n++
		}
	}
	return n
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
