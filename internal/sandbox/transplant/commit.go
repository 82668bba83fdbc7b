package transplant

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// What is read of commits at most: bytes of all, and changed paths.
const (
	maxCommitBytes = 256 << 20
	maxMessage     = 16 << 20 // and of one
	maxChanges     = 1_000_000
)

// Commit is a commit that a sandbox has made. Its texts are those of the sandbox: hostile.
type Commit struct {
	ID       string
	Parents  []string
	Author   string // name, address and time, as git stores them
	Encoding string // of the message; "" for UTF-8
	Message  string
	Signed   bool
	Changes  []Change // to the first parent

	tree string
}

// Entry is a file, a link or a submodule of a tree; the zero Entry is none.
type Entry struct{ Mode, ID string }

// The modes of entries.
const (
	modeLink      = "120000"
	modeSubmodule = "160000"
)

func (e Entry) isFile() bool { return strings.HasPrefix(e.Mode, "100") }

// Change is a path that a commit changes.
type Change struct {
	Path     string // in the repository
	Old, New Entry
}

// IsLink reports whether the path is a symbolic link after the commit.
func (x Change) IsLink() bool { return x.New.Mode == modeLink }

// Subject returns the first line of the message.
func (c *Commit) Subject() string {
	line, _, _ := strings.Cut(strings.TrimLeft(c.Message, "\n"), "\n")
	return line
}

// AuthorName returns the name and the address of the author.
func (c *Commit) AuthorName() string {
	if end := strings.LastIndexByte(c.Author, '>'); end >= 0 {
		return c.Author[:end+1]
	}
	return c.Author
}

// readCommits reads what the revisions reach in the repository "clean".
func (t *Taken) readCommits(ctx context.Context, revisions string) error {
	list, err := t.git.Run(ctx, "clean", strings.NewReader(revisions), "rev-list", "--stdin", "--topo-order", "--reverse")
	if err != nil {
		return err
	}
	ids := strings.Fields(list)
	if err := t.readBodies(ctx, ids, func(c *Commit) {
		t.Commits = append(t.Commits, c)
		t.byID[c.ID] = c
	}); err != nil {
		return err
	}
	trees, err := t.parentTrees(ctx)
	if err != nil {
		return err
	}
	return t.readChanges(ctx, trees)
}

// parentTrees returns the tree of the first parent of each commit. Errors: Precondition for a
// commit that does not continue the history of the sandbox.
func (t *Taken) parentTrees(ctx context.Context) (map[string]string, error) {
	trees := map[string]string{}
	var old []string
	for _, c := range t.Commits {
		if len(c.Parents) == 0 {
			return nil, errdefs.New(errdefs.Precondition, "%s has no parent: its history is unrelated to that of the source; the files can be committed to a branch without its commits%s", c.ID, errdefs.Command("apply NAME --to-branch BRANCH"))
		}
		for _, parent := range c.Parents {
			_, known := t.reals[parent]
			if !known && t.byID[parent] == nil {
				return nil, errdefs.New(errdefs.Precondition, "%s has the parent %s, which is no commit of the sandbox's history", c.ID, parent)
			}
		}
		trees[c.ID] = c.tree
		if t.byID[c.Parents[0]] == nil {
			old = append(old, c.Parents[0])
		}
	}
	return trees, t.readBodies(ctx, old, func(c *Commit) { trees[c.ID] = c.tree })
}

// readBodies calls do with each commit.
func (t *Taken) readBodies(ctx context.Context, ids []string, do func(*Commit)) error {
	if len(ids) == 0 {
		return nil
	}
	p, err := t.git.Start(ctx, "clean", "cat-file", "--batch", "--buffer")
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.WriteString(p.In, strings.Join(ids, "\n")+"\n") // else the output ends early
		_ = p.In.Close()
	}()
	r := bufio.NewReader(p.Out)
	left := int64(maxCommitBytes)
	for range ids {
		c, size, err := readBody(r, left)
		if err != nil {
			p.Kill()
			return err
		}
		left -= size
		do(c)
	}
	return p.End(ctx)
}

// readBody reads an answer of git cat-file --batch.
func readBody(r *bufio.Reader, left int64) (*Commit, int64, error) {
	line, err := r.ReadString('\n')
	field := strings.Fields(line)
	if err != nil || len(field) != 3 || field[1] != "commit" {
		return nil, 0, errdefs.New(errdefs.Internal, "git cat-file: %q", line)
	}
	size, err := strconv.ParseInt(field[2], 10, 64)
	if err != nil || size < 0 || size > min(left, maxMessage) {
		return nil, 0, errdefs.New(errdefs.Exhausted, "the commit %s is larger than 16 MiB, or all are larger than 256 MiB", field[0])
	}
	body := make([]byte, size+1)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, 0, errdefs.New(errdefs.Internal, "git cat-file: it ends within a commit")
	}
	c := parseCommit(string(body[:size]))
	c.ID = field[0]
	return c, size, nil
}

// parseCommit reads a commit that git has checked. Like git it takes the first header of a kind,
// and no parents after the author.
func parseCommit(body string) *Commit {
	c := &Commit{}
	headers, message, _ := strings.Cut(body, "\n\n")
	c.Message = message
	first := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	for line := range strings.SplitSeq(headers, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "tree":
			first(&c.tree, rest)
		case word == "parent" && c.Author == "":
			c.Parents = append(c.Parents, rest)
		case word == "author":
			first(&c.Author, rest)
		case word == "encoding":
			first(&c.Encoding, rest)
		case word == "gpgsig", word == "gpgsig-sha256":
			c.Signed = true
		}
	}
	return c
}

// readChanges reads what each commit changes.
func (t *Taken) readChanges(ctx context.Context, trees map[string]string) error {
	var list strings.Builder
	for _, c := range t.Commits {
		list.WriteString(trees[c.Parents[0]] + " " + c.tree + "\n")
	}
	p, err := t.git.Start(ctx, "clean", "diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--no-textconv", "--full-index")
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.WriteString(p.In, list.String()) // else the output ends early
		_ = p.In.Close()
	}()
	if err := readRaw(bufio.NewReader(p.Out), t.Commits); err != nil {
		p.Kill()
		return err
	}
	return p.End(ctx)
}

// readRaw reads what git diff-tree prints of pairs of trees: a line with both, and entries that
// begin with a colon (git-diff-tree(1)).
func readRaw(r *bufio.Reader, commits []*Commit) error {
	changes := 0
	for _, c := range commits {
		if line, err := r.ReadString('\n'); err != nil || strings.HasPrefix(line, ":") {
			return badDiff(line)
		}
		var err error
		if c.Changes, err = readEntries(r, maxChanges-changes); err != nil {
			return err
		}
		changes += len(c.Changes)
	}
	return nil
}

// readEntries reads the entries of one pair of trees, at most most of them.
func readEntries(r *bufio.Reader, most int) ([]Change, error) {
	var list []Change
	for {
		next, err := r.Peek(1)
		if err != nil || next[0] != ':' {
			return list, nil
		}
		about, err := r.ReadString(0)
		field := strings.Fields(strings.TrimSuffix(about, "\x00"))
		if err != nil || len(field) != 5 {
			return nil, badDiff(about)
		}
		name, err := r.ReadString(0)
		if err != nil {
			return nil, badDiff(name)
		}
		if len(list) == most {
			return nil, errdefs.New(errdefs.Exhausted, "the commits change more than %d files", maxChanges)
		}
		list = append(list, Change{strings.TrimSuffix(name, "\x00"), entry(field[0][1:], field[2]), entry(field[1], field[3])})
	}
}

func entry(mode, id string) Entry {
	if strings.Trim(mode, "0") == "" {
		return Entry{}
	}
	return Entry{mode, id}
}

func badDiff(text string) error { return errdefs.New(errdefs.Internal, "git diff-tree: %q", text) }
