package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/pidfd"
)

// Query is the process of a query.
type Query struct {
	t       testing.TB
	process *os.File
}

// OpenQuery waits until a process runs a query, as a child, and returns the query's process.
func OpenQuery(t testing.TB, parent int) *Query {
	t.Helper()
	for t.Context().Err() == nil {
		for _, pid := range children(parent) {
			process, err := pidfd.Open(pid)
			if err != nil {
				continue // it has ended
			}
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(line, []byte("__query")) {
				t.Cleanup(func() { process.Close() })
				return &Query{t, process}
			}
			process.Close()
		}
	}
	t.Fatal("no query runs")
	return nil
}

// Ends waits until the process has ended.
func (q *Query) Ends() {
	q.t.Helper()
	if err := pidfd.Wait(q.t.Context(), q.process); err != nil {
		q.t.Errorf("the process of the query: %v", err)
	}
}

// children are the processes that a process started and has not waited for.
func children(parent int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent)) // the pattern is well-formed
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}
