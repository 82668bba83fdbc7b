package review

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/githistory"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// What the story of a repository tells at most.
const (
	maxStoryCommits = 1000 // that are read
	maxStoryLines   = 32
	maxSubjects     = 3  // of a branch
	maxSubject      = 60 // characters

	storyPatience = 2 * time.Second // for git, in all
)

// gitStory tells the changes of a git directory as commits, branches and tags. It
// reads the refs and the new loose commits itself. Git is asked only for commits of
// packs that the sandbox made.
type gitStory struct {
	work    *changes.Work
	earlier *changes.Work // the state that work is compared with; nil: the source
	dir     vpath.Path
	changed map[string]*FileDiff // by the path below dir
	inState map[string]*FileDiff // what work changed in the source, the same without earlier

	before, after     githistory.Refs
	oldHead, newHead  string          // the refs that are checked out
	oldHeadID, headID string          // the commits, where no ref is
	read              int             // commits
	told              map[string]bool // commits that a line has named
	packed            map[string]githistory.Commit
	unread            error // why packed may lack some
}

// storyCommit is a commit of the delta.
type storyCommit struct {
	id string
	githistory.Commit
}

// lines are the story, a change a line, those with commits first.
func (s *gitStory) lines(ctx context.Context) []string {
	if err := s.readRefs(); err != nil {
		return []string{"branches and tags that cannot be read: " + vpath.Escape(err.Error())}
	}
	s.readPacks(ctx)
	var with, without []string
	tell := func(line string, commits int) {
		switch {
		case line == "":
		case commits > 0:
			with = append(with, line)
		default:
			without = append(without, line)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.after)) {
		tell(s.tellRef(name, s.before[name], s.after[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(s.before)) {
		if s.after[name] == "" {
			tell(fmt.Sprintf("%s deleted, it was at %s", refName(name), short(s.before[name])), 0)
		}
	}
	tell(s.tellHead())
	all := slices.Concat(with, without)
	switch {
	case len(all) == 0:
		return []string{s.tellRest()}
	case len(all) > maxStoryLines:
		all = append(all[:maxStoryLines], fmt.Sprintf("%d more branches and tags changed", len(all)-maxStoryLines))
	}
	if s.unread != nil {
		all = append(all, "new commits in packs are not listed: "+vpath.Escape(s.unread.Error()))
	}
	return all
}

// tellRest says what has changed where no ref has.
func (s *gitStory) tellRest() string {
	switch {
	case s.changed["index"] != nil:
		return "the index: what is staged for the next commit"
	case len(s.before) == 0 && s.oldHead == "":
		return "a new repository without commits"
	}
	return "git's own state, no branch and no tag changed"
}

// tellRef says what became of a ref, and of how many commits that tells.
func (s *gitStory) tellRef(name, was, is string) (line string, commits int) {
	if was == is {
		return "", 0
	}
	title := refName(name)
	list, forward := s.newCommits(was, is)
	list = s.untold(list)
	switch {
	case was == "" && len(list) == 0:
		return fmt.Sprintf("new %s at %s", title, s.describe(is)), 0
	case was == "":
		return fmt.Sprintf("%s on new %s: %s", countCommits(list), title, subjects(list)), len(list)
	case len(list) == 0 && forward:
		return fmt.Sprintf("%s moved on from %s to %s", title, short(was), s.describe(is)), 0
	case len(list) == 0:
		return fmt.Sprintf("%s moved from %s to %s", title, short(was), s.describe(is)), 0
	case !forward:
		return fmt.Sprintf("%s rewritten, %s is no part of it any more, with %s: %s", title, short(was), countCommits(list), subjects(list)), len(list)
	}
	return fmt.Sprintf("%s on %s: %s", countCommits(list), title, subjects(list)), len(list)
}

// tellHead says what is checked out, where that changed.
func (s *gitStory) tellHead() (line string, commits int) {
	switch {
	case s.newHead == s.oldHead && s.headID == s.oldHeadID:
		return "", 0
	case s.newHead != "" && s.oldHead == "" && s.oldHeadID == "":
		return "", 0 // a new repository
	case s.newHead != "":
		return refName(s.newHead) + " is checked out", 0
	case s.headID == "":
		return "HEAD is deleted or damaged", 0
	}
	was := s.oldHeadID
	if was == "" {
		was = s.before[s.oldHead]
	}
	list, _ := s.newCommits(was, s.headID)
	list = s.untold(list)
	if len(list) == 0 {
		return s.describe(s.headID) + " is checked out, on no branch", 0
	}
	return fmt.Sprintf("%s on no branch: %s", countCommits(list), subjects(list)), len(list)
}

// newCommits lists the commits that are new below tip, the latest first.
// forward says that they lead to was, the ref as it was before.
func (s *gitStory) newCommits(was, tip string) (list []storyCommit, forward bool) {
	known := map[string]bool{}
	for _, id := range s.before {
		known[id] = true
	}
	seen := map[string]bool{tip: true}
	queue := []string{tip}
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		forward = forward || id == was
		if known[id] || s.read > maxStoryCommits {
			continue
		}
		c, err := s.commit(id, true)
		if err != nil {
			continue // of the source, or no commit
		}
		s.read++
		list = append(list, storyCommit{id, c})
		for _, parent := range c.Parents {
			if !seen[parent] {
				seen[parent] = true
				queue = append(queue, parent)
			}
		}
	}
	return list, forward
}

// untold returns those of the commits that no line has named yet, and counts them as
// named: a commit is new once.
func (s *gitStory) untold(list []storyCommit) []storyCommit {
	if s.told == nil {
		s.told = map[string]bool{}
	}
	var fresh []storyCommit
	for _, c := range list {
		if !s.told[c.id] {
			s.told[c.id] = true
			fresh = append(fresh, c)
		}
	}
	return fresh
}

// commit reads a commit that is new, or, unless onlyNew, a loose one that is not.
func (s *gitStory) commit(id string, onlyNew bool) (c githistory.Commit, err error) {
	if c, ok := s.packed[id]; ok {
		return c, nil
	}
	name := githistory.LooseName(id)
	if name == "" {
		return c, errors.New("no object")
	}
	p := s.dir + "/objects/" + vpath.Path(name)
	f, err := s.openNew(p, onlyNew)
	if err != nil && !onlyNew {
		f, err = s.work.Stack.OpenSource(p)
	}
	if err != nil {
		return c, err
	}
	defer f.Close()
	return githistory.ReadCommit(id, f)
}

// openNew opens what the delta has at p, unless onlyNew says that the earlier state must not have
// it.
func (s *gitStory) openNew(p vpath.Path, onlyNew bool) (*os.File, error) {
	if onlyNew && s.earlier != nil {
		if f, err := s.earlier.Stack.OpenDelta(p); err == nil {
			f.Close()
			return nil, os.ErrExist
		}
	}
	return s.work.Stack.OpenDelta(p)
}

// describe names an object, with its subject where that can be read.
func (s *gitStory) describe(id string) string {
	c, err := s.commit(id, false)
	if err != nil {
		return short(id)
	}
	return short(id) + " " + subject(c)
}

func countCommits(list []storyCommit) string {
	if len(list) > maxStoryCommits {
		return fmt.Sprintf("more than %d commits", maxStoryCommits)
	}
	return Count(len(list), "commit")
}

// subjects are the first lines of the messages, for a terminal.
func subjects(list []storyCommit) string {
	var all []string
	for i, c := range list {
		if i == maxSubjects {
			all = append(all, fmt.Sprintf("%d more", len(list)-i))
			break
		}
		all = append(all, subject(c.Commit))
	}
	return strings.Join(all, ", ")
}

func subject(c githistory.Commit) string {
	text := []rune(c.Subject)
	if len(text) > maxSubject {
		return vpath.Quote(string(text[:maxSubject])) + "…"
	}
	return vpath.Quote(c.Subject)
}

func short(id string) string { return id[:min(len(id), 7)] }

// refName names a ref for people.
func refName(name string) string {
	for _, kind := range []struct{ prefix, word string }{
		{"refs/heads/", "branch "}, {"refs/tags/", "tag "}, {"refs/remotes/", "remote branch "},
	} {
		if rest, ok := strings.CutPrefix(name, kind.prefix); ok {
			return kind.word + vpath.Escape(rest)
		}
	}
	return "ref " + vpath.Escape(name)
}

// readRefs reads the refs of the source, and makes of them those of the states that are compared.
func (s *gitStory) readRefs() error {
	source, err := s.readSource()
	if err != nil {
		return err
	}
	was := source
	s.inState = s.changed
	if s.earlier != nil {
		if was, err = source.with(s.earlier, stateRefs(s.earlier, s.dir)); err != nil {
			return err
		}
		s.inState = stateRefs(s.work, s.dir)
	}
	is, err := source.with(s.work, s.inState)
	if err != nil {
		return err
	}
	s.before, s.oldHead, s.oldHeadID = was.all, was.head, was.headID
	s.after, s.newHead, s.headID = is.all, is.head, is.headID
	return nil
}

// stateOfRefs are the refs of a repository in one state.
type stateOfRefs struct {
	all, loose, packed githistory.Refs
	head, headID       string // as ReadHead has them
}

// readSource reads the refs of the source.
func (s *gitStory) readSource() (r stateOfRefs, err error) {
	r = stateOfRefs{all: githistory.Refs{}, loose: githistory.Refs{}, packed: githistory.Refs{}}
	dir, err := s.work.Stack.OpenSourceDir(s.dir)
	if isAbsent(err) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	if r.all, err = githistory.ReadRefs(fd); err != nil {
		return r, err
	}
	delete(r.all, "HEAD")
	if r.packed, err = githistory.ReadPacked(fd); err != nil {
		return r, err
	}
	if r.loose, err = githistory.ReadLoose(fd); err != nil {
		return r, err
	}
	r.head, r.headID, err = githistory.ReadHead(fd)
	return r, err
}

// with returns the refs after the changes of w.
func (r stateOfRefs) with(w *changes.Work, changed map[string]*FileDiff) (stateOfRefs, error) {
	r.loose, r.packed = maps.Clone(r.loose), maps.Clone(r.packed)
	refs := 0
	for rel, f := range changed {
		isRef := strings.HasPrefix(rel, "refs/") && !f.isDirOnly()
		if !isRef && rel != "packed-refs" && rel != "HEAD" {
			continue
		}
		if refs++; refs > maxRefFiles {
			return r, fmt.Errorf("more than %d refs have changed", maxRefFiles)
		}
		text, err := readRef(w, f)
		if err != nil {
			return r, err
		}
		ref, id := githistory.ParseRef(text)
		switch {
		case rel == "HEAD":
			r.head, r.headID = ref, id
		case rel == "packed-refs":
			r.packed = githistory.Refs{}
			r.packed.AddPacked(text)
		case id != "":
			r.loose[rel] = id
		default: // deleted, or it stands for another ref
			delete(r.loose, rel)
		}
	}
	r.all = maps.Clone(r.packed)
	maps.Copy(r.all, r.loose)
	return r, nil
}

// maxRefFiles is how many files of refs are read.
const maxRefFiles = 1000

// readRef reads what the delta has of a file of refs, nothing of one that it deletes.
func readRef(w *changes.Work, f *FileDiff) ([]byte, error) {
	if f.New == nil {
		return nil, nil
	}
	if f.New.Mode&record.TypeBits != unix.S_IFREG {
		return nil, fmt.Errorf("%s is no regular file", changes.Quote(f.Path))
	}
	file, err := w.Stack.OpenDelta(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readShort(file)
}
