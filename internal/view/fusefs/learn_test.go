package fusefs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// kinds are the kinds of uses in words.
func kinds(k uses.Kind) string {
	var words []string
	for i, word := range []string{"found", "listed", "read", "executed", "written", "created", "removed", "tree"} {
		if k&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

// TestUsesAreRecorded: in one mount, each script in a directory of its own.
func TestUsesAreRecorded(t *testing.T) {
	tests := []struct {
		script string
		want   map[string]string // by path below the directory
	}{
		{"cat f", map[string]string{"f": "found read"}},
		{"cat f; cat f; stat f", map[string]string{"f": "found read"}},
		{"cat empty", map[string]string{"empty": "found read"}},
		{"stat f", map[string]string{"f": "found"}},
		{"stat absent", map[string]string{}},
		{"ls", map[string]string{".": "found listed"}},
		{"ls; stat f", map[string]string{".": "found listed", "f": "found"}},
		{"ls -l s", map[string]string{"s": "found listed", "s/x": "found"}},
		{"cat s/x", map[string]string{"s": "found", "s/x": "found read"}},
		{"cat link", map[string]string{"link": "found read", "f": "found read"}},
		{"readlink link", map[string]string{"link": "found read"}},
		{"test -L link", map[string]string{"link": "found"}},
		{"./run", map[string]string{"run": "found read executed"}}, // the shell reads the script
		{"true >>f", map[string]string{"f": "found written"}},
		{"true >f", map[string]string{"f": "found written"}},
		{"true <>f", map[string]string{"f": "found written"}},
		{"true >new", map[string]string{"new": "created"}},
		{"mkdir new", map[string]string{"new": "created"}},
		{"ln -s x new", map[string]string{"new": "created"}},
		{"chmod 600 f", map[string]string{"f": "found written"}},
		{"rm -f f", map[string]string{"f": "found removed"}},
		{"mv f g", map[string]string{"f": "found removed", "g": "created"}},
		{"ln f g", map[string]string{"f": "found written", "g": "created"}},
		{"mv s t", map[string]string{"s": "found removed tree", "t": "created tree"}},
		{"mkdir n; true >n/a; mv n t", map[string]string{"n": "created removed", "n/a": "created", "t": "created tree"}},
		{"mkdir n; true >n/a; mv -T s n", map[string]string{"s": "found", "n": "found created", "n/a": "created"}}, // not empty
		{"cat hidden", map[string]string{}},
		{"true >>readonly", map[string]string{"readonly": "found"}},
	}
	source := tree{}
	for i := range tests {
		d := fmt.Sprintf("d%d/", i)
		source[d+"f"], source[d+"empty"], source[d+"s/x"], source[d+"hidden"], source[d+"readonly"] = "f", "", "x", "h", "r"
		source[d+"run"], source[d+"link"] = "#!/bin/sh\n:\n", "-> f"
	}
	v := mount(t, source, "**=write", "**/hidden=none", "**/readonly=read")
	for i := range tests {
		if err := os.Chmod(fmt.Sprintf("%s/d%d/run", v.source, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var r uses.Recorder
	if err := fusefs.Learn([]*fusefs.FS{v.FS}, []*uses.Recorder{&r}); err != nil {
		t.Fatal(err)
	}
	for i, tt := range tests {
		v.guest(fmt.Sprintf("cd d%d && { %s; } >/dev/null 2>&1 || true", i, tt.script))
	}
	got := map[string]map[string]string{}
	all, omitted := r.All()
	for _, u := range all {
		dir, rest, below := strings.Cut(u.Path.Rel(), "/")
		if dir == "." {
			continue
		}
		if got[dir] == nil {
			got[dir] = map[string]string{}
		}
		switch {
		case below:
			got[dir][rest] = kinds(u.Kind)
		case u.Kind != uses.Found:
			got[dir]["."] = kinds(u.Kind)
		}
		if u.Kind&uses.Read != 0 && len(u.Programs) == 0 {
			t.Errorf("%s: no program", u.Path)
		}
	}
	for i, tt := range tests {
		if diff := cmp.Diff(tt.want, got[fmt.Sprintf("d%d", i)]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.script, diff)
		}
	}
	if omitted != 0 {
		t.Errorf("%d uses were not recorded", omitted)
	}
}

func TestLearningBeginsBeforeTheFirstOpen(t *testing.T) {
	v := mount(t, tree{"f": "f"}, "**=read")
	v.guest("cat f")
	err := fusefs.Learn([]*fusefs.FS{v.FS}, []*uses.Recorder{{}})
	if !errdefs.Is(err, errdefs.Precondition) {
		t.Errorf("got %v, want Precondition", err)
	}
}
