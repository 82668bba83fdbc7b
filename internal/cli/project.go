package cli

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/trust"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// projectRules returns the project's own policy file and its rules, nil if it has
// none. The file came with the project, maybe from a stranger: unless
// it only narrows the default preset, the person must agree to it once for
// each content.
func (e *env) projectRules(home *record.Home, source string) (doc *policyfile.Document, rules []policy.Rule, note string, err error) {
	dir, err := projectDir(source)
	if err != nil || dir == "" {
		return nil, nil, "", err
	}
	content, err := readProjectFile(dir)
	if err != nil {
		return nil, nil, "", err
	}
	file := projectFileFrom(dir, source)
	if doc, rules, err = rulesBelow(content, dir, source); err != nil {
		return nil, nil, "", err
	}
	note = "project file"
	if dir != source {
		note += " " + vpath.Escape(file)
		e.say("policy: %s, from the nearest directory above that has one", vpath.Escape(file))
	}
	if onlyNarrows(doc, rules) {
		return doc, rules, note, nil
	}
	path := filepath.Join(dir, policy.ProjectFile.Rel())
	trusted, err := trust.Has(home, path, content)
	if err != nil || trusted {
		return doc, rules, note, err
	}
	if err := e.askForTrust(doc, file); err != nil {
		return nil, nil, "", err
	}
	return doc, rules, note, trust.Add(home, path, content)
}

// rulesBelow reads the policy file of dir and returns what it says of source,
// which is dir or lies below it.
func rulesBelow(content []byte, dir, source string) (*policyfile.Document, []policy.Rule, error) {
	doc, rules, err := parsePolicy(content, projectFileFrom(dir, source))
	if err != nil || dir == source {
		return doc, rules, err
	}
	return moveBelow(doc, rules, dir, source)
}

// moveBelow makes the policy of dir one of source, which lies below it.
func moveBelow(doc *policyfile.Document, rules []policy.Rule, dir, source string) (*policyfile.Document, []policy.Rule, error) {
	at, err := vpath.Parse(strings.TrimPrefix(source, strings.TrimSuffix(dir, "/")))
	if err != nil {
		return nil, nil, err
	}
	moved := *doc
	moved.Marks = nil
	for _, m := range doc.Marks {
		patterns, err := policy.Below([]policy.Rule{{Pattern: m.Pattern, Permission: policy.Read}}, at)
		if err != nil {
			return nil, nil, err
		}
		for _, r := range patterns {
			moved.Marks = append(moved.Marks, policyfile.RiskFlag{Pattern: r.Pattern, Reason: m.Reason})
		}
	}
	rules, err = policy.Below(rules, at)
	return &moved, rules, err
}

// projectFileFrom names the policy file of dir as seen from source.
func projectFileFrom(dir, source string) string {
	path := filepath.Join(dir, policy.ProjectFile.Rel())
	if rel, err := filepath.Rel(source, path); err == nil {
		return rel
	}
	return path
}

// projectDir returns the directory of the policy file that counts for source:
// source, or the nearest above it in its repository; "" if there is no such
// file. Above source a file of another user does not count, for anybody may put
// one there: that is an error, not passed over. Errors: Denied.
func projectDir(source string) (string, error) {
	if has(source, policy.ProjectFile.Rel()) {
		return source, nil
	}
	mine := ownersOf(source)
	root := repositoryAbove(source, mine)
	for dir := source; dir != root && root != ""; {
		dir = filepath.Dir(dir)
		if !has(dir, policy.ProjectFile.Rel()) {
			continue
		}
		path := filepath.Join(dir, policy.ProjectFile.Rel())
		if !mine(dir) || !mine(path) {
			return "", errdefs.New(errdefs.Denied, "policy %s of a directory above: another user owns it or its directory; "+
				"read it, then pass it with --policy %[1]s, or choose a --preset", vpath.Escape(path))
		}
		return dir, nil
	}
	return "", nil
}

// repositoryAbove returns the outermost directory at or above dir that is the
// work tree of a git repository of an owner that counts, "" if there is none.
func repositoryAbove(dir string, mine func(path string) bool) (root string) {
	for ; ; dir = filepath.Dir(dir) {
		if mine(filepath.Join(dir, ".git")) {
			root = dir
		}
		if dir == filepath.Dir(dir) {
			return root
		}
	}
}

// ownersOf returns what tells whether a path is there and its owner is one who
// may say what a sandbox of dir sees: this user, root or the owner of dir.
func ownersOf(dir string) func(path string) bool {
	owners := []int{os.Geteuid(), 0}
	owner := func(path string) int {
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			return -1
		}
		return int(st.Uid)
	}
	if o := owner(dir); o >= 0 {
		owners = append(owners, o)
	}
	return func(path string) bool { return slices.Contains(owners, owner(path)) }
}

// ofDirectoryAbove tells whether path is the policy file of a directory above
// source, at which its patterns begin, and returns that directory.
func ofDirectoryAbove(path, source string) (dir string, above bool) {
	if filepath.Base(path) != policy.ProjectFile.Rel() || source == "" {
		return "", false
	}
	dir, err := realPath(filepath.Dir(path))
	return dir, err == nil && dir != source && safefs.IsBelow(source, dir)
}

func has(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// readProjectFile reads the project's own policy file, which may be anything: a
// link that leads elsewhere is refused, not passed over. Errors:
// fs.ErrNotExist; Invalid.
func readProjectFile(source string) ([]byte, error) {
	content, err := safefs.ReadRegularIn(source, policy.ProjectFile.Rel(), policyfile.MaxBytes)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "project policy %s: %w", vpath.Escape(filepath.Join(source, policy.ProjectFile.Rel())), err)
	}
	return content, nil
}

// onlyNarrows reports whether a policy certainly grants no more than the
// default preset: it is that preset, or nothing, with none-rules on top, no host and no
// scratch directory. Of a directory above, whose rules are moved, it grants nothing to be written.
func onlyNarrows(doc *policyfile.Document, rules []policy.Rule) bool {
	if doc.Preset != "" && doc.Preset != preset.Default {
		return false
	}
	if doc.Network != nil && len(doc.Network.Allow) > 0 {
		return false
	}
	if len(doc.Scratch) > 0 {
		return false
	}
	for _, r := range doc.Rules {
		if r.Permission != policy.None {
			return false
		}
	}
	usual, err := preset.Rules(preset.Default)
	return err == nil && !slices.ContainsFunc(rules, func(r policy.Rule) bool {
		return r.Permission == policy.Write && !slices.ContainsFunc(usual, func(u policy.Rule) bool { return u.Pattern == r.Pattern })
	})
}

// askForTrust shows what the project's file grants and asks on the terminal.
// Without one nothing prompts.
func (e *env) askForTrust(doc *policyfile.Document, file string) error {
	how := fmt.Sprintf("the project's %s grants more than the default preset; read it, then pass it with --policy %[1]s, or choose a --preset", vpath.Escape(file))
	if !e.canAsk() {
		return errdefs.New(errdefs.Denied, "%s", how)
	}
	fmt.Fprintln(e.stderr, "The project brings a policy that grants more than the default preset:")
	if doc.Preset != "" {
		fmt.Fprintf(e.stderr, "  preset %s\n", vpath.Escape(doc.Preset))
	}
	for _, r := range doc.Rules {
		fmt.Fprintf(e.stderr, "  %s%s\n", r, keepNote(r))
	}
	for _, s := range doc.Scratch {
		fmt.Fprintf(e.stderr, "  scratch: %s (its contents are never reviewed)\n", vpath.Escape(s.Text))
	}
	if doc.Network != nil {
		for _, h := range doc.Network.Allow {
			fmt.Fprintf(e.stderr, "  network: %s\n", vpath.Escape(h.Text))
		}
	}
	if !e.confirm("Use it, now and until it changes?") {
		return errdefs.New(errdefs.Denied, "%s", how)
	}
	return nil
}

// canAsk reports whether a person is there to answer.
func (e *env) canAsk() bool {
	return term.IsTerminal(int(e.stdin.Fd())) && term.IsTerminal(int(e.stderr.Fd()))
}

// confirm asks on the terminal; anything but a yes is a no.
func (e *env) confirm(question string) bool {
	fmt.Fprintf(e.stderr, "%s [y/N] ", question)
	answer, err := bufio.NewReader(e.stdin).ReadString('\n')
	return err == nil && strings.EqualFold(strings.TrimSpace(answer), "y")
}
