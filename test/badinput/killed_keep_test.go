package badinput_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/test/harness"
)

const keepingPolicy = `version: 1
rules:
  - {pattern: "**", permission: write}
  - {pattern: /state/, permission: write, apply: keep}
  - {pattern: /conf.json, permission: write, apply: keep, keys: [history]}
`

// The end of a command that is killed while it keeps state loses nothing: the end of the next
// command goes on with it, and finds no conflict with the first.
func TestAKilledKeepGoesOn(t *testing.T) {
	points := map[string][]string{
		"root":     {"keep: begins", "sync: intended", "sync: staged", "sync: one placed", "sync: swapped", "sync: settled", "sync: told", "sync: dropped"},
		"ordinary": {"sync: one placed", "sync: told"},
	}
	for name, options := range map[string][]harness.Option{"root": nil, "ordinary": {harness.Ordinary}} {
		for _, point := range points[name] {
			t.Run(name+" "+point, func(t *testing.T) {
				s := harness.New(t, binary, map[string]string{
					"state/token": "1", "state/gone": "1", "state/d/x": "1", "state/x.db": "SQLite format 3\x00 1", "state/x.db-wal": "1", "conf.json": `{"history":1,"mcp":1}`,
				}, options...)
				policy := filepath.Join(s.Home, "keep.yaml")
				if err := os.WriteFile(policy, []byte(keepingPolicy), 0o644); err != nil {
					t.Fatal(err)
				}
				wantCode(t, s.Run("true", "--policy", policy), 0)
				s.KilledAt(point, "exec", s.Name, "--", "sh", "-c", `cd state && echo 2 > token.tmp && mv token.tmp token && rm -r gone d && mkdir -p a/b && echo 2 > a/b/c && printf 'SQLite format 3\0 2' > x.db && rm x.db-wal && echo 2 > x.db-shm && printf '{"history":2,"mcp":2}' > ../conf.json`)
				wantCode(t, s.Agentfense("exec", s.Name, "--", "true"), 0)
				got := map[string]string{}
				for _, file := range []string{"state/token", "state/a/b/c", "state/x.db", "state/x.db-shm", "conf.json"} {
					got[file] = s.Read(file)
				}
				want := map[string]string{"state/token": "2\n", "state/a/b/c": "2\n", "state/x.db": "SQLite format 3\x00 2", "state/x.db-shm": "2\n", "conf.json": `{"history":2,"mcp":1}`}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("source (-want +got):\n%s", diff)
				}
				for _, gone := range []string{"state/gone", "state/d", "state/x.db-wal"} {
					if _, err := os.Lstat(filepath.Join(s.Source, gone)); err == nil {
						t.Errorf("%s is still there", gone)
					}
				}
				prints(t, s.Agentfense("diff", s.Name, "--name-status"), "M\tconf.json\n")
				r := s.Agentfense("exec", s.Name, "--", "sh", "-c", `echo 3 > state/token; printf '{"history":3,"mcp":2}' > conf.json`)
				wantCode(t, r, 0)
				if s.Read("state/token") != "3\n" || s.Read("conf.json") != `{"history":3,"mcp":1}` {
					t.Errorf("the next command kept %q and %q: %s", s.Read("state/token"), s.Read("conf.json"), r.Stderr)
				}
			})
		}
	}
}

// Of a database that is being kept when its command is killed, the next one places the rest.
func TestAKilledKeepOfADatabaseGoesOn(t *testing.T) {
	for _, point := range []string{"sync: staged", "sync: one placed"} {
		t.Run(point, func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"state/x.db": "SQLite format 3\x00 1", "state/x.db-journal": "1"})
			policy := filepath.Join(s.Home, "keep.yaml")
			if err := os.WriteFile(policy, []byte(keepingPolicy), 0o644); err != nil {
				t.Fatal(err)
			}
			wantCode(t, s.Run("true", "--policy", policy), 0)
			s.KilledAt(point, "exec", s.Name, "--", "sh", "-c", `cd state && printf 'SQLite format 3\0 2' > x.db && rm x.db-journal && echo 2 > x.db-wal && echo 2 > x.db-shm`)
			wantCode(t, s.Agentfense("exec", s.Name, "--", "true"), 0)
			if s.Read("state/x.db") != "SQLite format 3\x00 2" || s.Read("state/x.db-wal") != "2\n" || s.Read("state/x.db-shm") != "2\n" {
				t.Error("not all of the database was kept")
			}
			if _, err := os.Lstat(filepath.Join(s.Source, "state/x.db-journal")); err == nil {
				t.Error("the journal of the database before is still there")
			}
			prints(t, s.Agentfense("diff", s.Name, "--name-status"), "")
		})
	}
}
