package uses_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/uses"
)

func TestUsesOfAPathAreJoined(t *testing.T) {
	var r uses.Recorder
	asked := 0
	program := func() string { asked++; return fmt.Sprint("p", asked) }
	for _, k := range []uses.Kind{uses.Found, uses.Read, uses.Read, uses.Written, uses.Executed, uses.Removed} {
		r.Note("/a", k, false, program)
	}
	r.Note("/", uses.Listed, true, program)
	got, omitted := r.All()
	want := []uses.Use{
		{Path: "/", Kind: uses.Listed, Dir: true, Programs: []string{"p5"}},
		{Path: "/a", Kind: uses.Found | uses.Read | uses.Written | uses.Executed | uses.Removed, Programs: []string{"p1", "p2", "p3"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || omitted != 0 {
		t.Errorf("%d omitted, uses (-want +got):\n%s", omitted, diff)
	}
	if !r.Is("/a", uses.Read) || r.Is("/a", uses.Created) || r.Is("/b", uses.Read) {
		t.Error("Is does not tell what was recorded")
	}
}

func TestARecorderIsBounded(t *testing.T) {
	var r uses.Recorder
	none := func() string { return "" }
	r.Note("/"+vpath.Path(strings.Repeat("x", 5000)), uses.Read, false, none)
	long := vpath.Path("/" + strings.Repeat("y", 4000))
	for i := range 20_000 { // more than the bytes that it keeps
		r.Note(long+vpath.Path(fmt.Sprint(i)), uses.Read, false, none)
	}
	all, omitted := r.All()
	bytes := 0
	for _, u := range all {
		bytes += len(u.Path)
	}
	if bytes > 64<<20 || int64(len(all))+omitted != 20_001 || omitted == 0 {
		t.Errorf("it keeps %d paths with %d bytes, and omitted %d", len(all), bytes, omitted)
	}
}
