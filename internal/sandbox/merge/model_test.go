package merge_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

func TestMain(m *testing.M) {
	// Each step waits for the disk. A flag still has its way.
	if err := flag.Set("rapid.checks", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// files is what a state shows: contents by path.
type files map[string]string

var names = []string{"a", "b", "d/c", "d/new", "new"}

// model is a sandbox and two forks of it. began is what a fork and the sandbox had in common at the
// fork, or at the last merge.
type model struct {
	*world
	dir   string
	shows map[string]files
	began map[string]files
}

// text returns a text of the lines 1 to 8 of which some are others.
func text(t *rapid.T, label string) string {
	var b strings.Builder
	for i := range 8 {
		switch rapid.IntRange(0, 9).Draw(t, label) {
		case 0:
			fmt.Fprintf(&b, "%s of %d\n", label, i)
		case 1:
		default:
			fmt.Fprintf(&b, "line %d\n", i)
		}
	}
	return b.String()
}

func (m *model) edit(t *rapid.T, box string) {
	name := rapid.SampledFrom(names).Draw(t, "name")
	if _, there := m.shows[box][name]; there && rapid.IntRange(0, 4).Draw(t, "remove") == 0 {
		m.remove(box, name)
		delete(m.shows[box], name)
		return
	}
	content := text(t, box)
	if rapid.IntRange(0, 9).Draw(t, "binary") == 0 {
		content = "\x00" + content
	}
	m.write(box, name, content)
	m.shows[box][name] = content
}

// mergeFile is the oracle: git merge-file.
func (m *model) mergeFile(t *rapid.T, base, ours, theirs string) (merged string, clean bool) {
	args := []string{"merge-file", "-p"}
	for i, content := range []string{ours, base, theirs} {
		path := filepath.Join(m.dir, fmt.Sprint(i))
		must(t, os.WriteFile(path, []byte(content), 0o600))
		args = append(args, path)
	}
	out, err := exec.Command("git", args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", false
	}
	must(t, err)
	return string(out), true
}

// expect returns what a merge of a fork makes, and the paths of its conflicts.
func (m *model) expect(t *rapid.T, fork string) (after files, conflicts []string) {
	ours, theirs, base := m.shows["into"], m.shows[fork], m.began[fork]
	after = maps.Clone(ours)
	for _, name := range names {
		o, hasO := ours[name]
		x, hasX := theirs[name]
		b, hasB := base[name]
		switch {
		case hasO == hasX && o == x, hasX == hasB && x == b:
		case hasO == hasB && o == b:
			if hasX {
				after[name] = x
			} else {
				delete(after, name)
			}
		case !hasO || !hasX || strings.Contains(o+x+b, "\x00"):
			conflicts = append(conflicts, name)
		default:
			merged, clean := m.mergeFile(t, b, o, x)
			if !clean {
				conflicts = append(conflicts, name)
			}
			after[name] = merged
		}
	}
	if len(conflicts) > 0 {
		return ours, conflicts
	}
	return after, nil
}

func (m *model) mergeFork(t *rapid.T, fork string) {
	after, conflicts := m.expect(t, fork)
	before := maps.Clone(m.shows["into"])
	r := m.merge(fork, "into", conflict.Merge)
	var found []string
	for _, c := range r.Conflicts {
		found = append(found, c.Path.Rel())
	}
	if !slices.Equal(found, conflicts) {
		t.Fatalf("merge of %s: conflicts at %q, want %q\nbase %q\nours %q\ntheirs %q\n%+v",
			fork, found, conflicts, m.began[fork], m.shows["into"], m.shows[fork], r.Conflicts)
	}
	m.shows["into"] = after
	if len(conflicts) > 0 || r.Kept.Number == 0 {
		return
	}
	m.began[fork] = maps.Clone(m.shows[fork])
	if rapid.IntRange(0, 3).Draw(t, "take back") > 0 {
		return
	}
	_, err := snapshot.Restore(m.box("into"), "@{1}", false)
	must(t, err)
	m.shows["into"] = before
	m.check(t)
	r = m.merge(fork, "into", conflict.Merge)
	if len(r.Conflicts) > 0 {
		t.Fatalf("the merge of %s after it was taken back has conflicts: %+v", fork, r.Conflicts)
	}
	m.shows["into"] = after
}

func (m *model) check(t *rapid.T) {
	for box, want := range m.shows {
		for _, name := range names {
			got := m.world.shows(box, name)
			if got != want[name] {
				t.Fatalf("%s shows %q at %s, want %q", box, got, name, want[name])
			}
		}
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(m.source, name))
		if _, has := began[name]; has != (err == nil) || !bytes.Equal(content, []byte(began[name])) {
			t.Fatalf("the source has another %s", name)
		}
	}
}

var began = files{"a": plain, "b": plain, "d/c": plain}

const plain = "line 0\nline 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\n"

// TestMergesAreThoseOfGit edits a sandbox and two forks at random and merges them: no byte is lost,
// and there are conflicts where git merge-file finds them, and nowhere else.
func TestMergesAreThoseOfGit(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		root := filepath.Join(base, fmt.Sprint(n))
		m := &model{world: newWorld(t, root, began), dir: root, shows: map[string]files{"into": maps.Clone(began)}, began: map[string]files{}}
		for range rapid.IntRange(0, 2).Draw(t, "edits before") {
			m.edit(t, "into")
		}
		for _, fork := range []string{"x", "y"} {
			m.fork(fork)
			m.shows[fork], m.began[fork] = maps.Clone(m.shows["into"]), maps.Clone(m.shows["into"])
		}
		t.Repeat(map[string]func(*rapid.T){
			"":          m.check,
			"edit into": func(t *rapid.T) { m.edit(t, "into") },
			"edit x":    func(t *rapid.T) { m.edit(t, "x") },
			"edit y":    func(t *rapid.T) { m.edit(t, "y") },
			"merge x":   func(t *rapid.T) { m.mergeFork(t, "x") },
			"merge y":   func(t *rapid.T) { m.mergeFork(t, "y") },
		})
		must(t, m.home.Remove("x"))
		must(t, os.RemoveAll(root))
	})
}
