package cleangit

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A commit can become several of the source: an undo of one of them leaves the others.
func TestACommitThatBecameSeveral(t *testing.T) {
	s := Store(t.TempDir())
	note := func(b Became) {
		t.Helper()
		if err := s.NoteTaken(map[string]Became{"c": b, "hidden": {Transaction: b.Transaction}}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want ...Became) {
		t.Helper()
		got, err := s.Taken()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got["c"]); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	note(Became{Real: "r1", Transaction: "t1"})
	note(Became{Real: "r2"})
	want(Became{Real: "r1", Transaction: "t1"}, Became{Real: "r2"})
	if err := s.NoteUndone("r1", true); err != nil {
		t.Fatal(err)
	}
	want(Became{Real: "r1", Transaction: "t1", Undone: true}, Became{Real: "r2"})
	note(Became{Real: "r1", Transaction: "t2"})
	want(Became{Real: "r2"}, Became{Real: "r1", Transaction: "t2"})
	for i := range 2 * maxBecame {
		note(Became{Real: fmt.Sprint(i)})
	}
	got, err := s.Taken()
	if err != nil || len(got["c"]) != maxBecame || got["c"][maxBecame-1].Real != fmt.Sprint(2*maxBecame-1) {
		t.Errorf("%v, %v", got, err)
	}
}
