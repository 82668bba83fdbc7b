package layer

import (
	"io"
	"testing"
)

// A directory that was only in the source when the stack kept it open is in the delta, too, once
// Changes has listed a file of it.
func TestChangesForgetsKeptDirectories(t *testing.T) {
	b := newBench(t, map[string]string{"d/source": "0"})
	s, err := Open(Options{Source: b.o.Source, Dir: b.o.Dir, Store: b.o.Store, ReadOnly: true, KeepDirs: true})
	must(t, err)
	defer s.Close()
	if _, err := s.Lookup("/d/source"); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		b.write("/d/made", "1")
		list, err := s.Changes()
		if err != nil || len(list) != 1 {
			t.Fatalf("Changes = %v, %v; want one change", list, err)
		}
		f, err := s.OpenDelta("/d/made")
		if err != nil {
			t.Fatal("the stack does not open what Changes has listed:", err)
		}
		got, err := io.ReadAll(f)
		f.Close()
		if string(got) != "1" || err != nil {
			t.Fatalf("/d/made reads %q, %v", got, err)
		}
		must(t, b.Drop("/d/made"))
	}
}
