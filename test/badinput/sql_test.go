package badinput_test

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// One call of a function takes minutes in this statement.
const oneStep = "select instr(replace(hex(zeroblob(1900000)),'0','a'), replace(hex(zeroblob(900000)),'0','a')||'b')"

// A query ends at its limit, and with its command. It leaves no process and no file.
func TestALongQueryEnds(t *testing.T) {
	for name, options := range map[string][]harness.Option{"root": nil, "ordinary": {harness.Ordinary}} {
		t.Run(name, func(t *testing.T) {
			temporary := t.TempDir()
			s := harness.New(t, binary, map[string]string{"a": "old"}, options...)
			s.Own(temporary)
			t.Setenv("TMPDIR", temporary)
			wantCode(t, s.Run("echo new > a", "--write", "a"), 0)
			prints(t, s.Agentfense("sql", s.Name, "select path from changes"), "path\n/a\n")
			r := s.Agentfense("sql", s.Name, "--timeout", "500ms", oneStep)
			wantCode(t, r, 124)
			if !strings.Contains(r.Stderr, "sql: the query takes longer than 500ms: simplify it, or give --timeout") {
				t.Errorf("it says %q", r.Stderr)
			}
			for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
				cmd := s.Command(t.Context(), "sql", s.Name, "--timeout", "10m", oneStep)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				query := harness.OpenQuery(t, cmd.Process.Pid)
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // it was ended
				query.Ends()
			}
			if left, err := filepath.Glob(filepath.Join(temporary, "*")); err != nil || left != nil {
				t.Errorf("it leaves %v, %v", left, err)
			}
		})
	}
}
