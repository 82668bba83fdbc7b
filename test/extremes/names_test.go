package extremes_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/test/harness"
)

// oddDir is the name of a directory.
const oddDir = "d\n\xff"

// oddNames returns names with every byte that a name may have, alone and inside, and those that
// options, shells, lists, patches and layers could take for something else.
func oddNames() []string {
	names := []string{
		strings.Repeat("\xff", vpath.NameMax), strings.Repeat("\n", vpath.NameMax), strings.Repeat(`"`, vpath.NameMax-1) + `\`,
		"--", "--json", "-p", "...", "é", `a\x0ab`, `\xff`, `\x5c`, "a\tb", ".. ", " -> ", "{a => b}", `C:\x`, `"quoted"`, `\dev\null`,
		"$(touch x)", "`touch x`", "%s%n", "\u202e", "\u200b", "\ufffd", "\xed\xa0\x80", "e\u0301", "?", "[a]",
		oddDir + "/\n", oddDir + "/\xfe", oddDir + "/-",
	}
	for b := 1; b < 256; b++ {
		c := string([]byte{byte(b)})
		if c == "/" {
			continue
		}
		if c != "." {
			names = append(names, c)
		}
		names = append(names, "in"+c+"side")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// utf8Names returns those of names that are UTF-8.
func utf8Names(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !utf8.ValidString(n) })
}

// Of three names one is created, one is modified and one is deleted.
func oldFiles(names []string) map[string]string {
	old := map[string]string{}
	for i, name := range names {
		if i%3 != 0 {
			old[name] = fmt.Sprintf("old %d\n", i)
		}
	}
	return old
}

func newFiles(names []string) map[string]string {
	changed := map[string]string{}
	for i, name := range names {
		switch i % 3 {
		case 0:
			changed[name] = fmt.Sprintf("new %d\n", i)
		case 1:
			changed[name] = fmt.Sprintf("old %d\nmore\n", i)
		}
	}
	return changed
}

// changeNames is a program that makes the changes, inside.
func changeNames(args []string) int {
	names := oddNames()
	if args[0] == "utf8" {
		names = utf8Names(names)
	}
	if err := change(names); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func change(names []string) error {
	changed := newFiles(names)
	for _, name := range names {
		content, kept := changed[name]
		if !kept {
			if err := os.Remove(name); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// A named is a sandbox with changes of every name.
type named struct {
	*harness.Sandbox
	names    []string
	old, now map[string]string // the source's files before an apply and after it
}

func changedNames(t *testing.T, which string) *named {
	t.Helper()
	n := &named{names: oddNames()}
	if which == "utf8" {
		n.names = utf8Names(n.names)
	}
	n.Sandbox = harness.New(t, binary, oldFiles(n.names))
	n.old = files(t, n.Source)
	n.now = newFiles(n.names)
	for name := range n.old {
		if strings.HasSuffix(name, "/") {
			n.now[name] = ""
		}
	}
	if r := n.RunProgram("names", []string{which}, "--preset", "full-access"); r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	return n
}

// letters returns the changes as diff --name-status has them, path to letter.
func (n *named) letters() map[string]string {
	letters := map[string]string{}
	for i, name := range n.names {
		letters[name] = []string{"A", "M", "D"}[i%3]
	}
	return letters
}

// shown returns what diff --name-status shows of a sandbox: a line for each change, and the
// letter of each path with the escapes undone.
func (n *named) shown(t *testing.T, name string, more ...string) (lines []string, letters map[string]string) {
	t.Helper()
	out, _ := must(t, n.Sandbox, append([]string{"diff", name, "--name-status"}, more...)...)
	letters = map[string]string{}
	for line := range strings.Lines(out) {
		letter, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		lines = append(lines, path)
		letters[unescape(t, path)] = letter
	}
	return lines, letters
}

// unescape undoes the escapes of a path.
func unescape(t *testing.T, path string) string {
	t.Helper()
	text, err := vpath.Unescape(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A shownFile is a file of diff --json.
type shownFile struct {
	Path  string
	ID    string
	Hunks []struct{ ID string }
}

func (n *named) json(t *testing.T, name string) map[string]shownFile {
	t.Helper()
	out, _ := must(t, n.Sandbox, "diff", name, "--json")
	var document struct{ Files []shownFile }
	if err := json.Unmarshal([]byte(out), &document); err != nil {
		t.Fatal(err)
	}
	found := map[string]shownFile{}
	for _, f := range document.Files {
		path, err := vpath.Unescape(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		found[path] = f
	}
	return found
}

// only returns what the source holds if just the changes of a letter were applied.
func (n *named) only(letter string) map[string]string {
	tree := maps.Clone(n.old)
	for name, l := range n.letters() {
		if l != letter {
			continue
		}
		if content, kept := n.now[name]; kept {
			tree[name] = content
		} else {
			delete(tree, name)
		}
	}
	return tree
}

// wantShown fails the test unless diff shows every change of a sandbox, by each of its forms.
func (n *named) wantShown(t *testing.T, name string) {
	t.Helper()
	lines, letters := n.shown(t, name)
	same(t, "diff "+name+" --name-status", letters, n.letters())
	if len(lines) != len(n.names) {
		t.Errorf("diff --name-status has %d lines, want one for each of %d names", len(lines), len(n.names))
	}
	if found := n.json(t, name); len(found) != len(n.names) {
		t.Errorf("diff --json has %d files, want %d", len(found), len(n.names))
	} else {
		for _, path := range n.names {
			if found[path].ID == "" {
				t.Errorf("diff --json has no id for %q", path)
			}
		}
	}
}

// A patch of names of every byte is one that git applies, and so is the text of diff.
func TestGitAppliesPatchesOfNamesOfEveryByte(t *testing.T) {
	testenv.Command(t, "git")
	n := changedNames(t, "all")
	n.wantShown(t, n.Name)
	dir := t.TempDir()
	exported, shown := filepath.Join(dir, "exported"), filepath.Join(dir, "shown")
	must(t, n.Sandbox, "export", n.Name, exported, "--format", "patch")
	out, _ := must(t, n.Sandbox, "diff", n.Name, "--raw")
	if err := os.WriteFile(shown, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, patch := range []string{exported, shown} {
		copied := t.TempDir()
		tool(t, n.Source, "cp", "-a", ".", copied)
		tool(t, copied, "git", "apply", patch)
		same(t, "git apply "+filepath.Base(patch), files(t, copied), n.now)
	}
}

// Whole, by path, by the quoting of diff and by the ids of hunks: each takes the changes that it
// names and no others, and undo and redo are exact.
func TestAppliesNamesOfEveryByte(t *testing.T) {
	testenv.Command(t, "bash")
	n := changedNames(t, "all")
	undo := func() {
		t.Helper()
		must(t, n.Sandbox, "undo", n.Name, "--yes")
		same(t, "undo", files(t, n.Source), n.old)
		n.wantShown(t, n.Name)
	}
	must(t, n.Sandbox, "apply", n.Name)
	same(t, "apply", files(t, n.Source), n.now)
	undo()
	must(t, n.Sandbox, "redo", n.Name, "--yes")
	same(t, "redo", files(t, n.Source), n.now)
	undo()

	var paths []string
	hunks := []string{"apply", n.Name}
	shown := n.json(t, n.Name)
	for path, letter := range n.letters() {
		switch letter {
		case "A":
			paths = append(paths, path)
		case "M":
			hunks = append(hunks, "--hunk", shown[path].Hunks[0].ID)
		}
	}
	must(t, n.Sandbox, append([]string{"apply", n.Name, "--"}, paths...)...)
	same(t, "apply of paths", files(t, n.Source), n.only("A"))
	undo()
	must(t, n.Sandbox, hunks...)
	same(t, "apply of hunks", files(t, n.Source), n.only("M"))
	undo()
	n.applyQuoted(t)
	same(t, "apply of quoted paths", files(t, n.Source), n.only("D"))
	undo()
}

// applyQuoted applies the deletions by the paths that diff shows, in the quotes of the shell.
func (n *named) applyQuoted(t *testing.T) {
	t.Helper()
	lines, _ := n.shown(t, n.Name)
	command := []string{"exec", `"$0"`, "apply", `"$1"`, "--"}
	for _, line := range lines {
		name := unescape(t, line)
		if n.letters()[name] != "D" {
			continue
		}
		command = append(command, "'"+strings.ReplaceAll(name, `'`, `'\''`)+"'")
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte(strings.Join(command, " ")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AGENTFENSE_HOME", n.Home)
	tool(t, n.Source, "bash", "-c", `. "$2"`, n.Binary, n.Name, script)
}

// Snapshots, forks and merges have the same changes.
func TestKeepsNamesOfEveryByte(t *testing.T) {
	n := changedNames(t, "all")
	must(t, n.Sandbox, "snapshot", n.Name, "kept")
	must(t, n.Sandbox, "fork", n.Name, "forked")
	must(t, n.Sandbox, "discard", n.Name)
	if lines, _ := n.shown(t, n.Name); len(lines) > 0 {
		t.Fatalf("discard left %q", lines)
	}
	n.wantShown(t, n.Name+"@kept")
	must(t, n.Sandbox, "restore", n.Name, "kept")
	n.wantShown(t, n.Name)
	n.wantShown(t, "forked")
	if lines, _ := n.shown(t, "forked", n.Name); len(lines) > 0 {
		t.Fatalf("the fork differs: %q", lines)
	}
	must(t, n.Sandbox, "create", "merged", "--preset", "full-access")
	must(t, n.Sandbox, "merge", "forked", "--into", "merged")
	n.wantShown(t, "merged")
	must(t, n.Sandbox, "apply", "merged")
	same(t, "apply of what was merged", files(t, n.Source), n.now)
}

// Archives hold every name. AgentFS has text for names: what it cannot hold is refused by name,
// all else comes back.
func TestExportsNamesOfEveryByte(t *testing.T) {
	n := changedNames(t, "all")
	dir := t.TempDir()
	must(t, n.Sandbox, "export", n.Name, filepath.Join(dir, "x.tar"), "--format", "tar")
	out := t.TempDir()
	tool(t, out, "tar", "xf", filepath.Join(dir, "x.tar"))
	want := map[string]string{oddDir + "/": ""}
	maps.Copy(want, newFiles(n.names))
	same(t, "export --format tar", files(t, out), want)

	must(t, n.Sandbox, "export", n.Name, filepath.Join(dir, "x.oci"), "--format", "oci")
	delete(want, oddDir+"/") // the image below has it
	for i, name := range n.names {
		if i%3 == 2 { // a whiteout can be longer than a name of a file system
			dir, base := path.Split(name)
			want[dir+".wh."+base] = ""
		}
	}
	same(t, "export --format oci", layerOf(t, filepath.Join(dir, "x.oci")), want)

	if r := n.Agentfense("export", n.Name, filepath.Join(dir, "x.db")); r.Code != 125 || !strings.Contains(r.Stderr, "UTF-8") {
		t.Errorf("export of names that are not UTF-8: exit code %d, %s", r.Code, r.Stderr)
	}
	text := changedNames(t, "utf8")
	must(t, text.Sandbox, "export", text.Name, filepath.Join(dir, "utf8.db"))
	must(t, text.Sandbox, "import", filepath.Join(dir, "utf8.db"), "back", "--preset", "full-access")
	text.wantShown(t, "back")
	must(t, text.Sandbox, "apply", "back")
	same(t, "apply of what was imported", files(t, text.Source), text.now)
}

// layerOf returns the entries of the one layer of an image, as files does.
func layerOf(t *testing.T, image string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	tool(t, dir, "tar", "xf", image)
	var index, manifest struct{ Manifests, Layers []struct{ Digest string } }
	readJSON(t, filepath.Join(dir, "index.json"), &index)
	readJSON(t, blob(dir, index.Manifests[0].Digest), &manifest)
	f, err := os.Open(blob(dir, manifest.Layers[0].Digest))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := map[string]string{}
	for archive := tar.NewReader(f); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return found
		}
		content, errRead := io.ReadAll(archive)
		if err := errors.Join(err, errRead); err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(content)
	}
}

func blob(dir, digest string) string {
	return filepath.Join(dir, "blobs", strings.Replace(digest, ":", "/", 1))
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
