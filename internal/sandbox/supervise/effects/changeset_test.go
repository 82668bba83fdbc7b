package effects

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/fusefs"
)

func TestChangeSetKeepsTheNetEffect(t *testing.T) {
	type event struct {
		kind     fusefs.ChangeKind
		path, to string // to "/e" is a directory's
	}
	tests := []struct {
		name   string
		events []event
		want   Changes
	}{
		{
			"a file made and written is created",
			[]event{{"created", "/a", ""}, {"modified", "/a", ""}},
			Changes{Created: []vpath.Path{"/a"}},
		},
		{
			"a file made and removed leaves no trace",
			[]event{{"created", "/a", ""}, {"deleted", "/a", ""}},
			Changes{},
		},
		{
			"a file removed and made again is modified",
			[]event{{"deleted", "/a", ""}, {"created", "/a", ""}},
			Changes{Modified: []vpath.Path{"/a"}},
		},
		{
			"a new file renamed is a creation there",
			[]event{{"created", "/a.tmp", ""}, {"renamed", "/a.tmp", "/a"}},
			Changes{Created: []vpath.Path{"/a"}},
		},
		{
			"a new file renamed over an old one modifies that",
			[]event{{"created", "/a.tmp", ""}, {"replaced", "/a.tmp", "/a"}},
			Changes{Modified: []vpath.Path{"/a"}},
		},
		{
			"a new file renamed over a new one is a creation there",
			[]event{{"created", "/a", ""}, {"created", "/a.tmp", ""}, {"replaced", "/a.tmp", "/a"}},
			Changes{Created: []vpath.Path{"/a"}},
		},
		{
			"an old file renamed twice is renamed once",
			[]event{{"renamed", "/a", "/b"}, {"renamed", "/b", "/c"}},
			Changes{Renamed: []Rename{{"/a", "/c"}}},
		},
		{
			"a file renamed and back is unchanged",
			[]event{{"renamed", "/a", "/b"}, {"renamed", "/b", "/a"}},
			Changes{},
		},
		{
			"a renamed file that is removed was deleted at its old name",
			[]event{{"renamed", "/a", "/b"}, {"deleted", "/b", ""}},
			Changes{Deleted: []vpath.Path{"/a"}},
		},
		{
			"what lies in a renamed directory moves along",
			[]event{{"created", "/d/x", ""}, {"renamed", "/d", "/e"}},
			Changes{Created: []vpath.Path{"/e/x"}, Renamed: []Rename{{"/d", "/e"}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s ChangeSet
			for _, e := range tt.events {
				c := fusefs.Change{Kind: e.kind, Path: vpath.Path(e.path), To: vpath.Path(e.to), Dir: e.to == "/e"}
				if e.kind == "replaced" {
					c.Kind, c.Over = fusefs.Renamed, true
				}
				s.Note(c)
			}
			if diff := cmp.Diff(tt.want, s.Take()); diff != "" {
				t.Errorf("changes differ (-want +got):\n%s", diff)
			}
			if !s.Take().IsEmpty() {
				t.Error("taking the changes did not empty the set")
			}
		})
	}
}

func TestChangeSetIsBounded(t *testing.T) {
	var s ChangeSet
	for i := range maxChanges + 5 {
		s.Note(fusefs.Change{Kind: fusefs.Created, Path: vpath.Root.Child(string(rune('a'+i%26)) + string(rune(0x100+i)))})
	}
	got := s.Take()
	if len(got.Created) != maxChanges || got.Omitted != 5 {
		t.Errorf("listed %d and omitted %d, want %d and 5", len(got.Created), got.Omitted, maxChanges)
	}
}
