package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// ask sends the requests to serve in an empty directory and returns the
// answers that follow its first word.
func ask(t *testing.T, requests ...request) []reply {
	t.Helper()
	root := t.TempDir()
	t.Chdir(root)
	in, toServe := io.Pipe()
	fromServe, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- serveRoot(root, in, out) }()
	enc, dec := json.NewEncoder(toServe), json.NewDecoder(fromServe)
	var replies []reply
	for i := range len(requests) + 1 {
		var a reply
		if err := dec.Decode(&a); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if !a.Ready {
				t.Fatalf("first word: %+v", a)
			}
		} else {
			replies = append(replies, a)
		}
		if i < len(requests) {
			if err := enc.Encode(requests[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	toServe.Close()
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
	return replies
}

func TestServe(t *testing.T) {
	got := ask(t,
		request{Work: "create", Passes: 2},
		request{Work: "rename", Passes: 1},
		request{Work: "unlink", Passes: 1},
		request{Work: "write-4k", Passes: 1},
		request{Work: "open-read"},
		request{Work: "nonsense"},
		request{Work: "grep", Cold: true})
	for _, a := range got[:4] {
		if a.Error != "" || a.Nanoseconds <= 0 {
			t.Errorf("got %+v", a)
		}
	}
	for i, want := range map[int]string{4: "no such file", 5: `unknown workload "nonsense"`, 6: "grep: not installed"} {
		if !strings.Contains(got[i].Error, want) {
			t.Errorf("got %+v, want an error with %q", got[i], want)
		}
	}
}

func TestAWorkloadThatDidNotDoItsWorkHasNoTime(t *testing.T) {
	a := ask(t, request{Work: "walk-all", Cold: true})[0]
	if a.Error != "walk: 0 files, want 100000" {
		t.Errorf("got %+v", a)
	}
}

func TestGeneratedDataIsTheSameInEachRun(t *testing.T) {
	if got, want := manyPath(1234), "many/d34/f01234.txt"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	total := 0
	for i := range manyFiles {
		n := manySize(i)
		if n < 200 || n > 8200 {
			t.Fatalf("file %d: %d bytes", i, n)
		}
		total += n
	}
	if total < 20<<20 || total > 40<<20 {
		t.Errorf("%d bytes in all", total)
	}
	if a, b := text(newRandom(1), 100), text(newRandom(1), 100); string(a) != string(b) {
		t.Errorf("%q and %q", a, b)
	}
}
