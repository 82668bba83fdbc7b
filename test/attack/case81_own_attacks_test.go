package attack_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

var hidePem = []string{"--preset", "full-access", "--hide", "*.pem", "--hide", "secrets/"}

// Whatever is done with what holds own entries, by whatever way it is taken over, no
// own entry reaches the source and nothing is lost there.
func TestNoWayAppliesOwnEntries(t *testing.T) {
	files := map[string]string{
		"dir/keep": "keep", "dir/k.pem": "host's", "tree/a": "a", "tree/sub/b": "b", "swap": "swap", "file": "file",
		"becomes/inner": "inner", "linked": "linked", "secrets/s": "host's",
	}
	s := harness.New(t, binary, files)
	r := s.Run(`set -e
echo forged > dir/k.pem; echo forged > dir/n.pem; mv dir moved        # a directory that holds own entries
mv tree secrets; echo forged > secrets/new                              # all of a directory, at an own name
echo forged > x.pem; mv swap y.pem; mv x.pem swap; mv y.pem x.pem      # two swap their places
mv becomes/inner inner.pem; rmdir becomes; echo file > becomes          # its directory becomes a file
mkdir -p .wh..wh.@dir; echo plain > .wh..wh.@file; echo plain > .wh.linked; echo plain > '.wh..wh.!file'
! ln linked l.pem; ln linked other; mv other o.pem`, hidePem...)
	wantCode(t, r, 0)
	for _, args := range [][]string{{"diff", s.Name}, {"diff", s.Name, "--name-only"}, {"diff", s.Name, "--stat"}} {
		if out := s.Agentfense(args...).Stdout; strings.Contains(out, "\x00") || args[len(args)-1] == s.Name && strings.Contains(out, "+forged\n") && !strings.Contains(out, "swap") {
			t.Errorf("%v shows an own entry as a change to apply:\n%s", args, out)
		}
	}
	// What would take a directory's place, of which a part stays, is in conflict.
	r = s.Agentfense("apply", s.Name, "--latest")
	wantLines(t, r.Stdout, "conflict\tT\tbecomes\t")
	if r.Code == 0 {
		t.Error("a file replaced a directory of which a part was moved to an own entry")
	}
	agentfense(t, s, "discard", s.Name, "becomes")
	out := agentfense(t, s, "apply", s.Name, "--latest")
	wantLines(t, out, "applied\tM\tswap", "left_out\tA\tmoved/n.pem", "left_out\tD\ttree\t", "left_out\tD\ttree/sub/b",
		"left_out\tA\tsecrets\t", "left_out\tA\tx.pem")
	for path, want := range map[string]string{
		"dir/k.pem": "host's", "tree/a": "a", "tree/sub/b": "b", "becomes/inner": "inner", "linked": "linked", "secrets/s": "host's",
		"moved/keep": "keep", "swap": "forged\n", ".wh..wh.@file": "plain\n", ".wh.linked": "plain\n", ".wh..wh.!file": "plain\n",
	} {
		if got := s.Read(path); got != want {
			t.Errorf("%s of the source holds %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"moved/k.pem", "moved/n.pem", "dir/n.pem", "secrets/new", "x.pem", "inner.pem", "l.pem", "o.pem"} {
		if exists(s.Source + "/" + path) {
			t.Errorf("%s was applied", path)
		}
	}
	// What was left out is still there, and of the program's own.
	prints(t, s, "cat moved/n.pem secrets/new secrets/sub/b x.pem; test ! -e tree", "forged\nforged\nbswap", hidePem...)
	agentfense(t, s, "discard", s.Name)
	prints(t, s, "cat tree/sub/b; ls -d *.pem secrets 2>&-; true", "b", hidePem...)
}

// wantLines checks that lines begin as wanted.
func wantLines(t *testing.T, text string, begins ...string) {
	t.Helper()
	lines := strings.Split(text, "\n")
	for _, want := range begins {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("no line begins with %q:\n%s", want, text)
		}
	}
}

// Part of an own directory, or what is beside an own entry, is discarded without the
// rest; what remains is still own.
func TestDiscardingAPartLeavesTheRestOwn(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"d/a": "a", "d/k.pem": "host's", "secrets/s": "host's"})
	wantCode(t, s.Run("set -e; echo forged > d/k.pem; echo x > d/a; mkdir secrets; echo forged > secrets/s; echo forged > secrets/t", hidePem...), 0)
	agentfense(t, s, "discard", s.Name, "d/a")
	agentfense(t, s, "discard", s.Name, "secrets/t")
	prints(t, s, "cat d/a d/k.pem secrets/*", "aforged\nforged\n", hidePem...)
	// Its policy wider, stricter and narrower: nothing becomes ordinary.
	prints(t, s, "cat d/k.pem secrets/s", "forged\nforged\n", "--preset", "full-access")
	prints(t, s, "cat d/k.pem secrets/s; rm d/k.pem; ! touch d/k.pem 2>&-", "forged\nforged\n", "--preset", "full-access", "--hide", "strict:*.pem", "--hide", "strict:secrets/")
	wantCode(t, s.Run("! ls d 2>&-; ! cat d/k.pem 2>&-", "--preset", "full-access", "--hide", "d/"), 0)
	agentfense(t, s, "apply", s.Name, "--latest")
	agentfense(t, s, "discard", s.Name, "secrets")
	prints(t, s, "cat d/a d/k.pem secrets/*", "ahost'shost's", "--preset", "full-access")
}

// Directories that hold own entries, or hide some of the source's, are renamed,
// emptied and removed alike whatever the source holds in them.
func TestDirectoriesOfOwnEntriesTellNothing(t *testing.T) {
	const script = `
try() { "$@" 2>&1; echo "$* $?"; }
for d in p q; do
  try mkdir $d/in.pem; try mkdir $d/in.pem/x; try rmdir $d/in.pem; try rmdir $d
  try mv $d r; try ls r; try ls -d $d; try mkdir $d; try ls -A $d; try rmdir $d; try mv r $d
  try mv $d r.pem; try mv r.pem $d
  try rm -r $d/in.pem; try ls -A $d; try touch $d/in.pem; try mv $d/in.pem $d/out; try mv $d/out $d/in.pem
  try mv -T $d/in.pem $d/f; try rm $d/f; try ls -A $d; try rmdir $d; try ls -A .
done`
	answers := []string{}
	for _, hidden := range []map[string]string{
		{}, {"p/in.pem": "file", "q/in.pem/x/y": "y"}, {"p/in.pem/x": "file in place of a directory", "p/other.pem": "", "q/r.pem": "", "r.pem/f": "f"},
	} {
		s := harness.New(t, binary, map[string]string{"p/f": "f", "q/f": "f"})
		for path, content := range hidden {
			s.Write(path, content)
		}
		answers = append(answers, s.Run(script, hidePem...).Stdout)
		agentfense(t, s, "apply", s.Name, "--latest")
		for path, content := range hidden {
			if got := s.Read(path); got != content {
				t.Errorf("applied, %s holds %q", path, got)
			}
		}
	}
	for i, got := range answers[1:] {
		if got != answers[0] {
			t.Errorf("with hidden entries %d:\n%s\nwithout any:\n%s", i+1, got, answers[0])
		}
	}
	if strings.Count(answers[0], "\n") < 40 {
		t.Error(fmt.Sprint("the script tried too little:\n", answers[0]))
	}
}

// A command that stands in a directory of its own stays there while changes are
// discarded beside it, whether or not the source has such a directory.
func TestStandingInAnOwnDirectoryTellsNothing(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"secrets/s": "host's", "b/x": "x"})
	d := s.Talk(standInOwn, nil, hidePem...)
	if got := d.Hear(); got != "standing" {
		t.Fatal(got)
	}
	agentfense(t, s, "discard", s.Name, "b/x")
	if got := d.Ask("where"); got != "<nil> <nil>" {
		t.Errorf("getcwd in own directories, of which the source has the first: %s", got)
	}
	if r := d.End(); r.Code != 0 {
		t.Error(r.Stderr)
	}
}

var standInOwn = program("stand in own", func(in *inside, _ []string) {
	root, err := os.Getwd()
	in.works("getwd", err)
	in.works("change", os.WriteFile("b/x", []byte("y"), 0o644))
	dirs := []string{"secrets", "absent.pem"}
	for _, dir := range dirs {
		in.works("mkdir", os.Mkdir(dir, 0o755))
	}
	at := make([]*os.File, len(dirs))
	for i, dir := range dirs {
		at[i], err = os.Open(dir)
		in.works("open", err)
	}
	fmt.Println("standing")
	var line string
	fmt.Scanln(&line)
	told := make([]string, len(dirs))
	for i, dir := range dirs {
		var got error
		if now, err := os.Readlink(procFD(int(at[i].Fd()))); err != nil || now != root+"/"+dir {
			got = fmt.Errorf("%s, %w", now, err)
		}
		told[i] = fmt.Sprint(got)
		in.is("where "+dir+" is", got, nil)
	}
	fmt.Println(strings.Join(told, " "))
})

// Nor is an own entry applied to another directory, whether or not that has something
// by its name.
func TestOwnEntriesAreNotAppliedElsewhere(t *testing.T) {
	files := map[string]string{"a.pem": "host's", "moved": "moved", "secrets/s": "host's", "f": "f"}
	s := harness.New(t, binary, files)
	elsewhere := harness.New(t, binary, files)
	wantCode(t, s.Run("set -e; echo forged > a.pem; echo forged > n.pem; mkdir secrets; echo forged > secrets/s; mv moved m.pem; echo x > f", hidePem...), 0)
	out := agentfense(t, s, "apply", s.Name, "--to", elsewhere.Source)
	wantLines(t, out, "left_out\tA\ta.pem", "left_out\tA\tn.pem", "left_out\tA\tsecrets\t", "left_out\tD\tmoved", "applied\tM\tf")
	files["f"] = "x\n"
	for path, want := range files {
		if got := elsewhere.Read(path); got != want {
			t.Errorf("%s of the other directory holds %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"n.pem", "m.pem"} {
		if exists(elsewhere.Source + "/" + path) {
			t.Errorf("%s was applied to the other directory", path)
		}
	}
}
