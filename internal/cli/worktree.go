package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// maxGitFile bounds the files of git that are read here: a path, or a configuration.
const maxGitFile = 1 << 20

// gitFile is where the .git file of a directory leads to: the directory is a
// worktree or a submodule, whose repository lies elsewhere.
type gitFile struct {
	kind string // "worktree" or "submodule"; "" if the repository does not name the directory in turn
	// shows is what has to be shown inside for git to find the repository.
	shows string
}

// readGitFile returns where source's .git file leads to, nil if there is none.
// The file came with the directory and may name anything: only a repository
// that names the directory in turn, and is this user's, root's or that of the
// directory's owner, is said to be its own.
func readGitFile(source string) *gitFile {
	content, err := safefs.ReadRegularIn(source, ".git", maxGitFile)
	named, isLink := strings.CutPrefix(string(content), "gitdir: ")
	if err != nil || !isLink {
		return nil
	}
	dir := absoluteFrom(source, strings.TrimRight(named, "\r\n"))
	f := &gitFile{shows: dir}
	mine := ownersOf(source)
	switch back, _ := readLine(dir, "gitdir"); { // gitrepository-layout(5)
	case !mine(dir):
	case back != "" && filepath.Base(filepath.Dir(dir)) == "worktrees":
		common := filepath.Dir(filepath.Dir(dir))
		link, _ := readLine(dir, "commondir")
		if mine(common) && isRepository(common) && absoluteFrom(dir, link) == common && sameFile(filepath.Dir(absoluteFrom(dir, back)), source) {
			f.kind, f.shows = "worktree", common
		}
	case isRepository(dir):
		if tree := workTreeOf(dir); tree != "" && sameFile(tree, source) {
			f.kind = "submodule"
		}
	}
	return f
}

func absoluteFrom(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// readLine returns the content of a file of one line.
func readLine(dir, name string) (string, error) {
	content, err := safefs.ReadRegularIn(dir, name, maxGitFile)
	return strings.TrimRight(string(content), "\r\n"), err
}

func isRepository(dir string) bool {
	return has(dir, "HEAD") && has(dir, "objects") && has(dir, "refs")
}

// workTreeOf returns core.worktree of the repository in dir, "" if it has none.
func workTreeOf(dir string) string {
	content, err := safefs.ReadRegularIn(dir, "config", maxGitFile)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(line, "=")
		if strings.TrimSpace(key) == "worktree" {
			return absoluteFrom(dir, strings.Trim(strings.TrimSpace(value), `"`))
		}
	}
	return ""
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// workTreeAbove returns the directory above source that git, in source, would take
// for its work tree, "" if there is none of an owner that counts or source is one itself.
func workTreeAbove(source string) string {
	mine := ownersOf(source)
	for dir := source; !has(dir, ".git"); {
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		if dir = up; mine(filepath.Join(dir, ".git")) {
			return dir
		}
	}
	return ""
}

// sayRepository says where the repository of a subdirectory, a worktree or a submodule
// is, if the policy shows .git, and what git can do inside. On a server, which has but
// the directory, nothing can be mounted.
func (e *env) sayRepository(source string, rules []policy.Rule, sb backend.Sandbox) error {
	f, above := readGitFile(source), workTreeAbove(source)
	if above == "" && (f == nil || safefs.IsBelow(f.shows, source)) {
		return nil
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil || p.Decide("/.git").Permission < policy.Read {
		return err
	}
	if above != "" {
		e.say("git: finds no repository inside: this directory is a part of %s; for a sandbox of the whole: --dir %s", vpath.Escape(above), shellWord(above))
		return nil
	}
	const none, outside = "git: finds no repository inside: ", "to commit, use git outside, after apply"
	where := vpath.Escape(f.shows)
	switch {
	case f.kind == "":
		e.say(none+".git leads to %s, which does not name this directory in turn", where)
	case !sb.HostPrograms:
		e.say(none+"this is a %s of %s, which is not uploaded; %s", f.kind, where, outside)
	case slices.ContainsFunc(sb.Record.Mounts, func(m record.Mount) bool { return safefs.IsBelow(f.shows, string(m.Target)) }):
		e.say("git: reads the repository of this %s inside, and cannot write it; %s", f.kind, outside)
	default:
		e.say(none+"this is a %s of %s, which lies outside of the source; to let git read it, with all its branches: --mount %s; %s",
			f.kind, where, shellWord(f.shows), outside)
	}
	return nil
}

// shellWord spells a path as one word of a shell's command line, as far as it
// prints.
func shellWord(path string) string {
	isPlain := func(r rune) bool {
		return strings.ContainsRune("/._-+@%", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if !strings.ContainsFunc(path, func(r rune) bool { return !isPlain(r) }) {
		return path
	}
	return "'" + strings.ReplaceAll(vpath.Escape(path), "'", `'\''`) + "'"
}
