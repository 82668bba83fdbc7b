package badinput_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// Runs of one name at once are one sandbox: each starts it or joins it, all of
// them end, and what each wrote is in the one delta.
func TestRunsOfOneNameAtOnce(t *testing.T) {
	const runs = 8
	s := harness.New(t, binary, map[string]string{"a": "a\n"})
	results := atOnce(runs, func(n int) harness.Result {
		return s.Run(fmt.Sprintf("cat a; echo %d > mine%d", n, n), "--preset", "full-access")
	})
	want := ""
	for n, r := range results {
		prints(t, r, "a\n")
		want += fmt.Sprintf("A\tmine%d\n", n)
	}
	prints(t, s.Agentfense("diff", s.Name, "--name-status"), want)
	wantCode(t, s.Agentfense("audit", s.Name, "--verify"), 0)
	if r := s.Agentfense("ls", "--quiet"); r.Stdout != s.Name+"\n" {
		t.Errorf("sandboxes: %q", r.Stdout)
	}
}

// With --exclusive each of them either has the sandbox for itself or is told
// that it runs.
func TestExclusiveRunsOfOneNameAtOnce(t *testing.T) {
	const runs = 8
	s := harness.New(t, binary, nil)
	wantCode(t, s.Agentfense("create", s.Name, "--preset", "full-access"), 0)
	results := atOnce(runs, func(n int) harness.Result {
		return s.Run(fmt.Sprintf("mkdir busy && echo %d > mine%d && rmdir busy", n, n), "--exclusive")
	})
	want := ""
	for n, r := range results {
		refused := strings.Contains(r.Stderr, "--exclusive") || strings.Contains(r.Stderr, "running") || strings.Contains(r.Stderr, "in use")
		if r.Code == 125 && refused && strings.Contains(r.Stderr, "sandbox "+s.Name) {
			continue
		}
		wantCode(t, r, 0)
		want += fmt.Sprintf("A\tmine%d\n", n)
	}
	if want == "" {
		t.Error("none of them ran")
	}
	prints(t, s.Agentfense("diff", s.Name, "--name-status"), want)
}

func atOnce(n int, do func(n int) harness.Result) []harness.Result {
	results := make([]harness.Result, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { results[i] = do(i) })
	}
	all.Wait()
	return results
}

// A source of more files than the supervisor may have descriptors is served
// within what it may have.
func TestManyFilesNeedFewDescriptors(t *testing.T) {
	const limit, dirs, files = 128, 300, 4
	sources := map[string]string{}
	for d := range dirs {
		for f := range files {
			sources[fmt.Sprintf("d%d/f%d", d, f)] = fmt.Sprintf("%d %d\n", d, f)
		}
	}
	s := harness.New(t, binary, sources)
	path := filepath.Join(t.TempDir(), "agentfense")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n", limit, s.Binary)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s.Binary = path
	wantCode(t, s.Agentfense("run", "--detach", "--preset", "full-access", "--name", s.Name, "--", "sleep", "600"), 0)
	// Every file is read, written and kept open by somebody.
	prints(t, s.Agentfense("exec", s.Name, "--", "sh", "-c",
		"cat d*/* | wc -l; for f in d*/*; do echo more >> $f; done; cat d*/* | wc -l; sleep 600 < d0/f0 >> d1/f1 & for d in d*; do rm $d/f3; done; find . -type f | wc -l"),
		fmt.Sprintf("%d\n%d\n%d\n", dirs*files, 2*dirs*files, dirs*(files-1)))
	if pid, n := descriptors(t, s); n >= limit {
		t.Errorf("the supervisor %d has %d descriptors of %d", pid, n, limit)
	}
	wantCode(t, s.Agentfense("apply", s.Name), 0)
	prints(t, s.Agentfense("diff", s.Name, "--name-status"), "")
	prints(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "cat d*/* | wc -l"), fmt.Sprintf("%d\n", 2*dirs*(files-1)))
	wantCode(t, s.Agentfense("stop", s.Name), 0)
}

// descriptors returns the sandbox's supervisor and how many it has open.
func descriptors(t *testing.T, s *harness.Sandbox) (pid, n int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		args, _ := os.ReadFile(dir + "/cmdline") // gone meanwhile: empty
		words := strings.Split(string(bytes.TrimRight(args, "\x00")), "\x00")
		if !slices.Equal(words[1:], []string{"__supervise", s.Home, s.Name}) {
			continue
		}
		open, err := os.ReadDir(dir + "/fd")
		if err != nil {
			t.Fatal(err)
		}
		pid, err = strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		return pid, len(open)
	}
	t.Fatal("there is no supervisor")
	return 0, 0
}

// Changes by the ten thousand are applied beside a supervisor,
// which is told of all of them at once. Long names make few of them enough.
func TestManyChangesBesideASupervisor(t *testing.T) {
	const files = 6500
	s := harness.New(t, binary, nil)
	wantCode(t, s.Agentfense("run", "--detach", "--preset", "full-access", "--name", s.Name), 0)
	const script = `n=$(printf '%0240d' 0 | tr 0 '\377'); i=0; while [ $i -lt 6500 ]; do : > "$n$i"; i=$((i+1)); done`
	prints(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", script), "")
	wantCode(t, s.Agentfense("apply", s.Name), 0)
	prints(t, s.Agentfense("diff", s.Name, "--name-status"), "")
	prints(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "ls | wc -l"), fmt.Sprintf("%d\n", files))
	wantCode(t, s.Agentfense("stop", s.Name), 0)
}
