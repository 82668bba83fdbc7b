package query_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/portable/query"
)

// runVerb has the test binary run a statement about a database: its arguments.
const runVerb = "__run"

// The test binary plays the process of a query too, and a process that runs one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case query.Verb:
			os.Exit(query.Main())
		case runVerb:
			db, err := os.Open(os.Args[2])
			if err == nil {
				_, err = query.Run(context.Background(), db, os.Args[3], bounds)
			}
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

var bounds = query.Bounds{Rows: 10, Time: 10 * time.Minute, MemoryBytes: 64 << 20}

// One call of a function takes minutes in these statements.
var oneStep = map[string]string{
	"instr": "select instr(replace(hex(zeroblob(1900000)),'0','a'), replace(hex(zeroblob(900000)),'0','a')||'b')",
	"like":  "select replace(hex(zeroblob(1900000)),'0','a') like '%'||replace(hex(zeroblob(24000)),'0','a')||'b'",
}

// count makes the table t of the numbers from 1 to n.
func count(n int) string {
	return fmt.Sprintf("with recursive t(n) as (values (1) union all select n+1 from t where n < %d) ", n)
}

// database returns a database with one table, and its path.
func database(t *testing.T) (*os.File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret-path.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "create table a (n int, t datetime, b boolean); insert into a values (1, '2026-01-02 03:04:05', true)")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, path
}

// children lists the processes that a process started and that have not been waited for.
func children(t *testing.T, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || lists == nil {
		t.Fatalf("the children of %d: %v", pid, err)
	}
	var all []int
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, child)
		}
	}
	return all
}

// waitForQuery returns the process of the query that a process runs, once its limits are set.
func waitForQuery(t *testing.T, pid int) int {
	t.Helper()
	for {
		for _, child := range children(t, pid) {
			var core unix.Rlimit
			if unix.Prlimit(child, unix.RLIMIT_CORE, nil, &core) == nil && core.Max == 0 {
				return child
			}
		}
		if t.Context().Err() != nil {
			t.Fatal("no query runs")
		}
	}
}

func wantNoChildren(t *testing.T) {
	t.Helper()
	if left := children(t, os.Getpid()); left != nil {
		t.Errorf("the processes %v are left", left)
	}
}

func TestValues(t *testing.T) {
	db, _ := database(t)
	got, err := query.Run(t.Context(), db, "select null as a, 1 as b, -1.5 as c, 'x' as d, cast(x'ff' as text) as e, x'00ff' as f, x'' as g, t, b from a", bounds)
	want := query.Rows{
		Columns: []string{"a", "b", "c", "d", "e", "f", "g", "t", "b"},
		Values:  [][]any{{nil, int64(1), -1.5, "x", "\xff", []byte{0, 255}, []byte{}, "2026-01-02T03:04:05.000000000Z", int64(1)}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = query.Run(t.Context(), db, "select 1 as \"\xff\" where false", bounds)
	if diff := cmp.Diff(query.Rows{Columns: []string{"\xff"}}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	wantNoChildren(t)
}

// A statement cannot ask where the database is.
func TestThePathIsNotTold(t *testing.T) {
	db, _ := database(t)
	got, err := query.Run(t.Context(), db, "select file from pragma_database_list", bounds)
	if diff := cmp.Diff(query.Rows{Columns: []string{"file"}, Values: [][]any{{"tables.db"}}}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestAMistakeIsExplained(t *testing.T) {
	db, _ := database(t)
	for statement, want := range map[string]string{
		"select missing from a":                           "sql: SQL logic error: no such column: missing (1)",
		"select zeroblob(5000000)":                        "sql: string or blob too big (18)",
		"select abs(-9223372036854775808) from a":         "sql: SQL logic error: integer overflow (1)",
		"with b as (select 1) delete from a":              "sql: attempt to write a readonly database (8)",
		"select '" + strings.Repeat("x", 4<<20) + "'":     "sql: string or blob too big (18)",
		"select writefile('/tmp/agentfense-sql', 'text')": "sql: SQL logic error: no such function: writefile (1)",
	} {
		if _, err := query.Run(t.Context(), db, statement, bounds); !errdefs.Is(err, errdefs.Invalid) || err.Error() != want {
			t.Errorf("%.50s: %v, want %s", statement, err, want)
		}
	}
}

func TestAQueryEndsAtItsLimit(t *testing.T) {
	db, _ := database(t)
	short := bounds
	short.Time = 300 * time.Millisecond
	for name, statement := range oneStep {
		if rows, err := query.Run(t.Context(), db, statement, short); !errdefs.Is(err, errdefs.Deadline) || rows.Columns != nil {
			t.Errorf("%s: %v, %v, want Deadline", name, rows, err)
		}
	}
	short.Time = 1
	if _, err := query.Run(t.Context(), db, "select 1", short); !errdefs.Is(err, errdefs.Deadline) {
		t.Errorf("no time: %v, want Deadline", err)
	}
	wantNoChildren(t)
}

func TestAQueryEndsWhenItIsCanceled(t *testing.T) {
	db, _ := database(t)
	for name, statement := range oneStep {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := query.Run(ctx, db, statement, bounds)
			ended <- err
		}()
		waitForQuery(t, os.Getpid())
		cancel()
		if err := <-ended; !errdefs.Is(err, errdefs.Canceled) {
			t.Errorf("%s: %v, want Canceled", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := query.Run(ctx, db, "select 1", bounds); !errdefs.Is(err, errdefs.Canceled) {
		t.Errorf("canceled before: %v, want Canceled", err)
	}
	wantNoChildren(t)
}

// A process that is killed leaves no query.
func TestAQueryEndsWithTheProcessThatRunsIt(t *testing.T) {
	_, path := database(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", runVerb, path, oneStep["instr"])
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(waitForQuery(t, cmd.Process.Pid), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 30_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			t.Errorf("the query has not ended: %v", err)
		}
		return
	}
}

// What SQLite needs counts, and what Go needs for a row.
func TestMemoryIsLimited(t *testing.T) {
	db, _ := database(t)
	for name, statement := range map[string]string{
		"a sort":     count(2000) + "select hex(randomblob(100000)) as x from t order by x",
		"a wide row": "select 1" + strings.Repeat(", randomblob(4000000)", 40),
	} {
		if rows, err := query.Run(t.Context(), db, statement, bounds); !errdefs.Is(err, errdefs.Exhausted) || !strings.Contains(err.Error(), "memory") || rows.Columns != nil {
			t.Errorf("%s: %d columns, %v, want Exhausted", name, len(rows.Columns), err)
		}
	}
	many := bounds
	many.Rows = 1000
	if _, err := query.Run(t.Context(), db, count(1e9)+"select zeroblob(1000000) from t", many); !errdefs.Is(err, errdefs.Exhausted) || !strings.Contains(err.Error(), "64 MiB") {
		t.Errorf("a large result: %v, want Exhausted", err)
	}
	wantNoChildren(t)
}

// The process has limits of its own, reads no file and gains nothing by one that it would start.
func TestTheProcessIsConfined(t *testing.T) {
	db, _ := database(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := query.Run(ctx, db, oneStep["instr"], bounds)
		ended <- err
	}()
	pid := waitForQuery(t, os.Getpid())
	for resource, most := range map[int]uint64{unix.RLIMIT_CPU: 1202, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0} {
		var got unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &got); err != nil || got.Max > most || got.Cur > most {
			t.Errorf("limit %d: %+v, %v, want %d", resource, got, err, most)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || !strings.Contains(string(text), "\nNoNewPrivs:\t1\n") {
		t.Errorf("status: %v\n%s", err, text)
	}
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || strings.Contains(string(environment), "PATH=") {
		t.Errorf("environment: %q, %v", environment, err)
	}
	cancel()
	<-ended
}
