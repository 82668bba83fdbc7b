package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A directory may be made above a path that a rule makes write, though no rule
// matches it. Whether the source has a file by that name, which is hidden, shows
// neither then nor later, and no apply replaces it.
func TestMkdirAtAHiddenAncestorTellsNothing(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		var without string
		t.Run("without hidden files", func(t *testing.T) {
			s := ancestorsSource(t, nil, who...)
			without = tryAncestors(t, s)
			if strings.Count(without, "\n") < 100 {
				t.Errorf("the script tried too little:\n%s", without)
			}
			agentfense(t, s, "apply", s.Name, "--latest")
			for _, name := range ancestors {
				if got := s.Read(name + "/in/out/new"); got != "new\n" {
					t.Errorf("applied, the file below %s holds %q", name, got)
				}
			}
		})
		t.Run("with hidden files", func(t *testing.T) {
			hidden := map[string]string{"a": "hidden", "c/in": "hidden", "d/x": "hidden", ancestors[5]: "hidden"}
			s := ancestorsSource(t, hidden, who...)
			if diff := cmp.Diff(strings.Split(without, "\n"), strings.Split(tryAncestors(t, s), "\n")); diff != "" {
				t.Errorf("without and with hidden files (-without +with):\n%s", diff)
			}
			r := s.Agentfense("apply", s.Name, "--latest")
			if r.Code == 0 {
				t.Error("apply replaced what the source has there")
			}
			wantLines(t, r.Stdout, "conflict\tA\ta\tthe source has an entry there that the policy hides", "conflict\tA\tb\t",
				"conflict\tA\tc/in\t", "conflict\tA\ta/in/out/new\t")
			for path, want := range hidden {
				if got := s.Read(path); got != want {
					t.Errorf("after apply %s holds %q, want %q", path, got, want)
				}
			}
			// What is discarded leaves the hidden file where it was, absent inside.
			agentfense(t, s, "discard", s.Name)
			prints(t, s, "ls -A . c", ".:\nc\nd\nw\n\nc:\n")
		})
	})
}

// ancestors are directories that no rule matches, of paths that a rule makes write.
var ancestors = []string{"a", "b", "c", "d", "e", "long" + strings.Repeat("g", 251)}

// ancestorsSource has the hidden files, and if any a FIFO, besides what shows.
func ancestorsSource(t *testing.T, hidden map[string]string, who ...harness.Option) *harness.Sandbox {
	s := harness.New(t, binary, map[string]string{"w/d/": "", "w/f": "f", "c/": "", "d/": ""}, who...)
	for path, content := range hidden {
		s.Write(path, content)
	}
	if hidden != nil {
		if err := unix.Mkfifo(filepath.Join(s.Source, "b"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// tryAncestors tells how what a script tries at the ancestors ends.
func tryAncestors(t *testing.T, s *harness.Sandbox) string {
	text := "version: 1\nrules:\n  - {pattern: /w/**, permission: write}\n"
	for _, name := range ancestors {
		text += "  - {pattern: /" + name + "/in/out/**, permission: write}\n"
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return s.Run(`
try() { "$@" 2>&1; echo "$? $*"; }
look() { for q in . $p $p/in $p/in/out w; do stat -c '%n %A %h %s %b' $q 2>&1; done; ls -A . $p $p/in 2>&1; }
for p in `+strings.Join(ancestors, " ")+`; do
  try touch $p; try ln -s w $p; try mv w/d $p; try ln w/f $p; try rmdir $p; try rm $p; try cat $p; try cat $p/in
  look; try mkdir $p; try mkdir $p; look
  try rmdir $p; try mv $p w/moved; try touch $p; try mv -T w/d $p
  try mkdir $p/in; try mkdir $p/in; try mkdir $p/other; try touch $p/x; try mkdir $p/in/out; try touch $p/in/out/f; try ls $p/in/out; look
  try mv $p/in/out w/out; try mv w/out $p/in/out; try rmdir $p/in; try rm -r $p/in/out; try rm -r $p; look
  try mkdir $p/in/out; echo new > $p/in/out/new; look
done`, "--policy", rules).Stdout
}
