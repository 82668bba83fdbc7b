package attack_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A file that is imported reaches nothing outside the new sandbox's delta, by no name and through
// no link, takes no policy along, and leaves nothing when it is refused. The other inconsistent
// databases are tested in internal/sandbox/portable.
func TestAnImportStaysInTheDelta(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		both, err := withServer()
		if err != nil {
			t.Fatal(err)
		}
		s := harness.New(t, both, map[string]string{"a": "old", "secret.pem": "secret"}, who...)
		agentfense(t, s, "run", "--name", "maker", "--preset", "full-access", "--", "sh", "-c",
			"echo x >NAMENAME; ln -s "+filepath.Dir(s.Source)+" outside; mkdir LINKED; echo x >LINKED/fresh; rm secret.pem")
		file := filepath.Join(s.Home, "file.db")
		agentfense(t, s, "export", "maker", file)
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		untouched := s.Untouched()
		for _, c := range []struct{ name, from, to string }{
			{"goes up", "NAMENAME", "../evil1"},
			{"is absolute", "NAMENAME", "/tmp/evl"},
			{"has a NUL", "NAMENAME", "\x00AMENAME"},
			{"deletes outside", "/secret.pem", "/../ret.pem"},
			{"is broken", "SQLite format", "SQLite tamrof"},
		} {
			bad := bytes.ReplaceAll(content, []byte(c.from), []byte(c.to))
			if bytes.Equal(bad, content) {
				t.Fatalf("%s: the file is as it was", c.name)
			}
			if err := os.WriteFile(file, bad, 0o644); err != nil {
				t.Fatal(err)
			}
			if r := s.Agentfense("import", file, "bad", "--preset", "full-access"); r.Code != 125 {
				t.Errorf("a name that %s: exit code %d: %s", c.name, r.Code, r.Stderr)
			}
			if r := s.Agentfense("inspect", "bad"); r.Code == 0 {
				t.Errorf("a name that %s: a sandbox remains", c.name)
			}
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		// The rules in the file permit all; those of the new sandbox hide a name.
		if r := s.Agentfense("import", file, "bad", "--preset", "full-access", "--hide", "*.pem"); r.Code == 0 {
			t.Error("the deletion of a hidden file was imported")
		}
		agentfense(t, s, "import", file, "good", "--preset", "full-access", "--hide", "*.pem", "--partial")
		untouched()
	})
}
