package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// TestMain lets the test binary play the program inside a place.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && hidden[os.Args[1]] != nil {
		if err := hidden[os.Args[1]](os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func small(t *testing.T, rows string) options {
	t.Helper()
	o := options{Dir: t.TempDir(), Binary: "/nonexistent/agentfense", Rounds: 2, Rows: regexp.MustCompile(rows)}
	o.JSON = filepath.Join(t.TempDir(), "result.json")
	return o
}

func TestARunMeasuresNativeAndLeavesNothing(t *testing.T) {
	o := small(t, "^(readdir|unlink-source)$")
	var out strings.Builder
	if err := bench(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "readdir of 1,000") || !strings.Contains(out.String(), "note: agentfense: /nonexistent/agentfense: not installed") {
		t.Errorf("table:\n%s", out.String())
	}
	data, err := os.ReadFile(o.JSON)
	if err != nil {
		t.Fatal(err)
	}
	var got jsonResult
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for _, row := range got.Rows {
		if n := len(row.Cells[nativeName].Samples); n != o.Rounds {
			t.Errorf("%s: %d native samples, want %d; notes: %q", row.ID, n, o.Rounds, got.Notes)
		}
	}
	if len(got.Rows) != 2 {
		t.Errorf("%d rows, want 2", len(got.Rows))
	}
	wantEmpty(t, o.Dir)
}

func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	o := small(t, "^readdir$")
	o.Rounds = 1000
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d, err := newDisk(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	rows := selectRows(o.Rows)
	if err := d.Generate(ctx, neededTrees(rows), func(string) {}); err != nil {
		t.Fatal(err)
	}
	places, _ := openPlaces(ctx, d, o, func(string) {})
	said := 0
	r := runner{disk: d, places: places, rows: rows, rounds: o.Rounds, say: func(string) {
		if said++; said == 2 {
			cancel()
		}
	}}
	if _, err := r.Run(ctx); err == nil {
		t.Error("the run went on to its end")
	}
	if err := closePlaces(places); err != nil {
		t.Error(err)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	wantEmpty(t, o.Dir)
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left behind: %s", e.Name())
	}
}

func TestOptions(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		rounds int
		peers  bool
		err    string
	}{
		{name: "by default five rounds with peers", rounds: defaultRounds, peers: true},
		{name: "quick is two rounds without peers", args: []string{"--quick"}, rounds: quickRounds},
		{name: "rounds given outrank quick", args: []string{"--quick", "--rounds", "9"}, rounds: 9},
		{name: "a malformed regexp is refused", args: []string{"--run", "("}, err: "--run: error parsing regexp"},
		{name: "an argument is refused", args: []string{"stat"}, err: `unexpected argument "stat"`},
		{name: "a negative number of rounds is refused", args: []string{"--rounds", "-1"}, err: "--rounds -1: must be positive"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, err := parseOptions(tt.args, io.Discard)
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
					t.Errorf("got error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || o.Rounds != tt.rounds || o.Peers != tt.peers {
				t.Errorf("got %+v, %v", o, err)
			}
		})
	}
}

func TestARowThatDoesNotExistIsRefusedWithTheList(t *testing.T) {
	err := bench(t.Context(), options{Dir: t.TempDir(), Rows: regexp.MustCompile("grap")}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "grep-first grep-warm open-read") {
		t.Errorf("got %v", err)
	}
}

func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range allRows {
		if seen[r.ID] {
			t.Errorf("%s: twice", r.ID)
		}
		seen[r.ID] = true
		if _, ok := works[r.Work]; ok == (r.Host != nil) {
			t.Errorf("%s: want either a workload or a measure from outside", r.ID)
		}
		if r.Mode == live && r.Host == nil && len(r.Dirty) > 0 {
			t.Errorf("%s: changes what the other live rows read", r.ID)
		}
	}
	if !allRows[0].Cold {
		t.Errorf("%s comes before the first-touch row", allRows[0].ID)
	}
}

func TestTheOrderOfPlacesRotates(t *testing.T) {
	r := runner{places: []place{&plain{name: "a"}, &plain{name: "b"}, &plain{name: "c"}}}
	var got []string
	for i := range 4 {
		order := ""
		for _, p := range r.turn(i) {
			order += p.Name()
		}
		got = append(got, order)
	}
	if diff := cmp.Diff([]string{"abc", "bca", "cab", "abc"}, got); diff != "" {
		t.Error(diff)
	}
}
