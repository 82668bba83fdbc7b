package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// A request asks the program inside a place to do a workload.
type request struct {
	Work   string
	Cold   bool // no untimed pass before
	Passes int
	Nonce  string            // differs for each request of the whole run
	Tools  map[string]string // path of each program a workload may run
}

// reply is what it took: the median of the passes.
type reply struct {
	Ready       bool `json:",omitempty"`
	Nanoseconds int64
	Error       string
}

// enough is the time after which no further pass is begun: a slow place gives
// a steady number in one pass.
const enough = 300 * time.Millisecond

// A workload prepares and finishes untimed, and is timed between. It works in
// the current directory, the root of the tree, and checks what it got: a
// workload that did not do its work has no time.
type workload struct {
	Prepare func(*inside) error // nil = nothing
	Measure func(*inside) error
	Finish  func(*inside) error // nil = nothing
}

// inside is what a workload knows.
type inside struct {
	Root  string // absolute path of the current directory
	Pass  int    // counts from 0, the untimed one included, within the session
	Nonce string
	Tools map[string]string
	buf   []byte
}

// scratch names a directory no earlier pass has used.
func (in *inside) scratch() string { return fmt.Sprintf("%s/%d", treeOut, in.Pass) }

// works are the workloads by name.
var works = map[string]workload{
	"grep":        {Measure: grep},
	"open-read":   {Measure: openRead},
	"stat":        {Measure: statFiles},
	"readdir":     {Measure: readDirectory},
	"walk":        {Measure: walk},
	"find":        {Measure: find},
	"read-seq":    {Measure: readSequential},
	"read-random": {Measure: readRandom},
	"read-mmap":   {Measure: readMapped},
	"walk-all":    {Measure: walkAll},

	"create":        {Prepare: makeScratch, Measure: createMany},
	"append":        {Prepare: statOnce("append"), Measure: appendOnce},
	"overwrite":     {Prepare: statOnce("overwrite"), Measure: overwriteOnce},
	"unlink":        {Prepare: makeEntries, Measure: unlinkEntries},
	"unlink-source": {Prepare: statOnce("unlink"), Measure: unlinkOnce},
	"rename":        {Prepare: makeEntries, Measure: renameEntries},
	"rename-source": {Prepare: statOnce("rename"), Measure: renameOnce},
	"write-fsync":   {Prepare: makeScratch, Measure: writeSynced, Finish: removeWritten},
	"write-4k":      {Prepare: makeScratch, Measure: writeSmall, Finish: removeWritten},

	"untar":       {Prepare: makeScratch, Measure: untar},
	"untar-many":  {Prepare: makeArchiveDirs, Measure: untarMany},
	"remove-many": {Prepare: unpackMany, Measure: removeMany},
	"git-status":  {Measure: gitStatus},
	"git-commit":  {Prepare: editRepo, Measure: gitCommit},
	"go-build":    {Prepare: editModule, Measure: goBuild},
	"cargo-build": {Measure: cargoBuild},
	"npm-ci":      {Prepare: makeProject, Measure: npmCI},
	"pip-install": {Prepare: makeScratch, Measure: pipInstall},
}

// serveMain is `bench __serve ROOT`: it does workloads in ROOT as they are
// asked for on standard input, one JSON value each, until that ends. It ends
// in the middle of a workload too, so that whoever asked need only go away.
func serveMain(args []string) error {
	if len(args) != 1 {
		return errors.New("__serve: want the root")
	}
	if err := os.Chdir(args[0]); err != nil {
		return err
	}
	return serveRoot(args[0], os.Stdin, os.Stdout)
}

func serveRoot(root string, r io.Reader, w io.Writer) error {
	requests := make(chan request)
	end := make(chan error, 1)
	go func() { end <- readRequests(r, requests) }()
	replies := make(chan reply)
	in := inside{Root: root, buf: make([]byte, 1<<20)}
	go func() {
		for q := range requests {
			replies <- in.perform(q)
		}
	}()
	out := json.NewEncoder(w)
	if err := out.Encode(reply{Ready: true}); err != nil {
		return err
	}
	for {
		select {
		case err := <-end:
			return err
		case a := <-replies:
			if err := out.Encode(a); err != nil {
				return err
			}
		}
	}
}

func readRequests(r io.Reader, to chan<- request) error {
	in := json.NewDecoder(bufio.NewReader(r))
	for {
		var q request
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("request: %w", err)
		}
		to <- q
	}
}

func (in *inside) perform(q request) reply {
	in.Nonce, in.Tools = q.Nonce, q.Tools
	took, err := in.passes(q)
	if err != nil {
		return reply{Error: err.Error()}
	}
	slices.Sort(took)
	return reply{Nanoseconds: int64(took[len(took)/2])}
}

func (in *inside) passes(q request) ([]time.Duration, error) {
	w, ok := works[q.Work]
	if !ok {
		return nil, fmt.Errorf("unknown workload %q", q.Work)
	}
	if !q.Cold {
		if _, err := in.pass(w); err != nil {
			return nil, err
		}
	}
	var took []time.Duration
	var sum time.Duration
	for range max(1, q.Passes) {
		d, err := in.pass(w)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
		if sum += d; sum > enough {
			break
		}
	}
	return took, nil
}

func (in *inside) pass(w workload) (time.Duration, error) {
	defer func() { in.Pass++ }()
	if w.Prepare != nil {
		if err := w.Prepare(in); err != nil {
			return 0, fmt.Errorf("prepare: %w", err)
		}
	}
	start := time.Now()
	err := w.Measure(in)
	took := time.Since(start)
	if err == nil && w.Finish != nil {
		err = w.Finish(in)
	}
	return took, err
}
