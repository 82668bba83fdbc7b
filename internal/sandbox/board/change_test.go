package board

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// drawTable returns a table with locks of three holders, some of them over by now.
func drawTable(t *rapid.T, now time.Time, before Table) Table {
	after := before.clone()
	after.Changes++
	for i := range 3 {
		h := Holder{ID: "sb_0000000000000000", Name: fmt.Sprint("box", i), PID: 100 + i}
		gone := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "c"})).Draw(t, "unlock")
		after.Release(h, func(l Lock) bool { return slices.Contains(gone, l.Path) })
		for _, p := range rapid.SliceOfNDistinct(rapid.SampledFrom([]vpath.Path{"/a", "/b", "/c", "/\xff"}), 0, 2, rapid.ID).Draw(t, "lock") {
			r := Request{Paths: []vpath.Path{p}, Advisory: rapid.Bool().Draw(t, "advisory"), For: time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "for"))}
			if _, _, err := after.Acquire(h, r, now.Add(-time.Duration(rapid.Int64Range(0, 2e9).Draw(t, "age")))); err != nil {
				t.Fatal(err)
			}
		}
	}
	return after
}

// TestAChangeMakesTheTableOfItsSender checks that whoever knew the table before has the same locks
// after the change, without expired ones.
func TestAChangeMakesTheTableOfItsSender(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1e9, 0)
		before := drawTable(t, now, Table{Version: tableVersion})
		after := drawTable(t, now, before)
		c, err := ParseChange(changeOf(before, after).Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		known := before.clone()
		got := c.Apply(before, now)
		if diff := cmp.Diff(known, before); diff != "" {
			t.Fatalf("Apply has changed its argument:\n%s", diff)
		}
		want := after.clone()
		want.Prune(now, func(Holder) bool { return true })
		for _, table := range []*Table{&got, &want} {
			slices.SortFunc(table.Locks, func(a, b Lock) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) })
		}
		if !slices.Equal(got.Locks, want.Locks) || got.Changes != want.Changes {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestAnIncompleteChangeIsRefused(t *testing.T) {
	l := Lock{Holder: Holder{ID: "sb_0000000000000000", Name: "box", PID: 7}, Path: "a", Advisory: true, Since: time.Unix(1, 2).UTC(), Until: time.Unix(3, 4).UTC(), Ticket: 5}
	c := Change{From: 1, To: 2, Ended: []string{"b"}, Begun: []Lock{l}}
	text := c.Append(nil)
	if got, err := ParseChange(text); err != nil || !cmp.Equal(got, c) {
		t.Fatalf("ParseChange = %+v, %v, want %+v", got, err, c)
	}
	for n := range text {
		if _, err := ParseChange(text[:n]); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%d bytes of %d: %v, want Invalid", n, len(text), err)
		}
	}
	if _, err := ParseChange(append(text, 0)); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("one byte too many: %v, want Invalid", err)
	}
}

// TestAChangeHasTimesFarAhead checks that a lock which ends in centuries is not told as one that
// has ended.
func TestAChangeHasTimesFarAhead(t *testing.T) {
	now := time.Now().UTC()
	for _, until := range []time.Time{{}, now, now.Add(math.MaxInt64), time.Date(2262, 4, 12, 0, 0, 0, 0, time.UTC)} {
		c := Change{Begun: []Lock{{Path: "a", Since: now, Until: until}}}
		if got, err := ParseChange(c.Append(nil)); err != nil || !cmp.Equal(got, c) {
			t.Errorf("until %s: ParseChange = %+v, %v", until, got, err)
		}
	}
}

func FuzzParseChange(f *testing.F) {
	f.Add((&Change{From: 1, To: 2, Ended: []string{"b"}, Begun: []Lock{{Path: "a"}}}).Append(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseChange(text)
		if err != nil {
			return
		}
		if again, err := ParseChange(c.Append(nil)); err != nil || !cmp.Equal(again, c) {
			t.Errorf("%+v, then %+v, %v", c, again, err)
		}
	})
}
