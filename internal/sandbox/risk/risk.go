// Package risk knows which files of a tree have an effect on the host: those that git, a
// shell, an editor, a build tool or an agent runs or follows.
//
// The data is in table.txt. A project may add patterns, which never replace a built-in one.
// A Table looks only at the text of a path, in every spelling that some file system treats
// as equal. The caller examines the tree, for example whether git would take a directory
// for a repository.
//
// The package does no I/O. A Table is immutable and safe for concurrent use.
package risk

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// Entry is a line of a table.
type Entry struct {
	// Runs says that the host runs the file although nobody starts it by name. Otherwise
	// the host reads and follows it.
	Runs    bool
	Pattern string // as in a policy file
	Reason  string // for people: "git hook"
	// ByName says that the file counts only when somebody starts a tool by its name, as a
	// build script does.
	ByName bool
	// isState says that the host only stores data in the file: what is marked because of its
	// directory is not, unless the host runs it.
	isState bool
}

// Table says which paths are at risk. The zero value is empty.
type Table struct {
	entries []Entry
	policy  *policy.Policy
	names   map[string]bool // elements of patterns: true for directories, see IsDirOfMarks
	own     *Table          // of the project's marks alone; nil without any
}

//go:embed table.txt
var builtInText string

// builtIn is compiled at its first use, because most commands do not need it.
var builtIn = sync.OnceValue(func() *Table {
	t, err := compile(parse(builtInText), nil)
	if err != nil {
		panic(err) // a test reads it
	}
	return t
})

// New returns the built-in table with a project's marks. A mark counts as read and followed
// if no built-in entry matches. Errors: Invalid for a malformed pattern.
func New(own []policyfile.RiskFlag) (*Table, error) {
	if len(own) == 0 {
		return builtIn(), nil
	}
	t, err := compile(builtIn().entries, own)
	if err == nil {
		t.own, err = compile(nil, own)
	}
	return t, err
}

// parse reads a table: a line is an entry's level, pattern and reason.
func parse(text string) []Entry {
	var entries []Entry
	byName := false
	for line := range strings.Lines(text) {
		if what, is := strings.CutPrefix(line, "#: "); is {
			byName = what == "by name\n"
		}
		fields := strings.Fields(line)
		if len(fields) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		entries = append(entries, Entry{
			Runs: fields[0] == "runs", Pattern: fields[1], Reason: strings.Join(fields[2:], " "), ByName: byName, isState: fields[0] == "state",
		})
	}
	return entries
}

// The ranks of entries. The most severe match counts.
const (
	rankOwn = iota
	rankLater
	rankState
	rankRuns
)

// compile makes a policy of the patterns, to match them with the policy engine.
func compile(entries []Entry, own []policyfile.RiskFlag) (*Table, error) {
	t := &Table{names: map[string]bool{}}
	var rules []policy.Rule
	add := func(e Entry, rank int32) {
		t.entries = append(t.entries, e)
		elements := strings.Split(fold(e.Pattern), "/")
		for i, name := range elements {
			isDir := i < len(elements)-1 && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_"))
			t.names[name] = t.names[name] || isDir
		}
		rules = append(rules, policy.Rule{
			Pattern: fold(e.Pattern), Permission: policy.Read, Priority: rank, Source: fmt.Sprintf("mark %s", vpath.Quote(e.Pattern)),
		})
	}
	for _, e := range entries {
		rank := int32(rankLater)
		switch {
		case e.Runs:
			rank = rankRuns
		case e.isState:
			rank = rankState
		}
		add(e, rank)
	}
	for _, m := range own {
		add(Entry{Pattern: m.Pattern, Reason: m.Reason}, rankOwn)
	}
	var err error
	if t.policy, err = policy.Compile(rules, policy.Options{}); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "marks: %w", err)
	}
	return t, nil
}

// IsDirOfMarks reports whether the table has entries below directories of this name. It
// considers only names that begin with a dot or an underscore, which are specific to tools.
// Other names are too common.
func (t *Table) IsDirOfMarks(name string) bool {
	isDir, _ := t.named(name)
	return isDir
}

// Knows reports whether p, or a path below it, may match because of the last element of p.
func (t *Table) Knows(p vpath.Path) bool {
	_, known := t.named(p.Base())
	if !known {
		_, known = t.At(p, false)
	}
	return known
}

func (t *Table) named(name string) (isDir, known bool) {
	for _, spelt := range Spellings(vpath.Root.Child(name)) {
		is, ok := t.names[spelt.Base()]
		isDir, known = isDir || is, known || ok
	}
	return isDir, known
}

// At returns the most severe entry that matches p in any of its spellings. A directory
// itself is not at risk, only its content.
func (t *Table) At(p vpath.Path, isDir bool) (best Entry, found bool) {
	for _, spelt := range Spellings(p) {
		d := t.policy.Decide(spelt)
		if d.Rule < 0 || d.Permission == policy.None {
			continue
		}
		e := t.entries[d.Rule]
		if e.isState {
			var marked bool
			if t.own != nil {
				e, marked = t.own.At(p, isDir)
			}
			if !marked {
				continue
			}
		}
		if isDir && !strings.HasSuffix(e.Pattern, "/") {
			continue
		}
		if !found || e.Runs && !best.Runs {
			best, found = e, true
		}
	}
	return best, found
}
