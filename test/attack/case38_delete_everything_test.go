package attack_test

import (
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// Deleting everything deletes nothing in the source; discard undoes it; hidden files are
// neither deleted nor revealed.
func TestDeleteEverything(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		eachHiding(t, func(t *testing.T, h hiding) { deleteEverything(t, h, who...) })
	})
}

func deleteEverything(t *testing.T, h hiding, who ...harness.Option) {
	files := map[string]string{"a": "a\n", "dir/b": "b\n", "dir/key.pem": "secret\n", "only/key.pem": "secret\n", ".dot": "dot\n"}
	s := harness.New(t, binary, files, who...)
	flags := append(h.flags("*.pem"), "--preset", "full-access")
	prints(t, s, `rm -rf -- * .[!.]* 2>&1; rm -rf "$PWD"/* 2>&1; ls -A; cat only/key.pem 2>&-; ls only 2>&-; stat -c %h .
for d in only never; do mkdir $d && { echo mine > $d/key.pem; rm -rf $d; } 2>&-; done`, "1\n", flags...)
	for path, content := range files {
		if s.Read(path) != content {
			t.Errorf("%s changed in the source", path)
		}
	}
	if r := s.Agentfense("diff", s.Name, "--name-status"); r.Stdout != "D\t.dot\nD\ta\nD\tdir/b\nD\tonly\n" {
		t.Errorf("the diff: %q, %q", r.Stdout, r.Stderr)
	}
	agentfense(t, s, "discard", s.Name)
	if r := s.Agentfense("diff", s.Name, "--name-status"); r.Code != 0 || r.Stdout != "" {
		t.Errorf("after discard: %d, %q", r.Code, r.Stdout)
	}
	prints(t, s, "find . | sort", ".\n./.dot\n./a\n./dir\n./dir/b\n./only\n")

	// Even applied, the deletion spares what was hidden.
	prints(t, s, "rm -rf -- *; ls", "")
	agentfense(t, s, "apply", s.Name)
	for _, path := range []string{"dir/key.pem", "only/key.pem"} {
		if s.Read(path) != "secret\n" {
			t.Errorf("%s changed by apply", path)
		}
	}
}
