package merge

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
)

// fit makes the step at a path one that leaves a tree: no directory goes while something stays in
// it, and nothing comes where no directory is.
func (p *plan) fit(at vpath.Path) error {
	s := p.at[at]
	if s == nil || s.becomes == nil {
		return nil
	}
	if s.was.isDir() && !s.becomes.isDir() {
		if goes, err := p.empties(s); err != nil || !goes {
			return err
		}
	}
	if s.becomes.isAbsent() || at.IsRoot() {
		return nil
	}
	return p.makeWay(s)
}

// empties reports whether nothing stays in the directory of s, which goes. Else it takes the step
// out of the plan: the directory stays, or it is a conflict.
func (p *plan) empties(s *step) (bool, error) {
	var left remaining
	if err := p.remains(s.path, &left); err != nil {
		return false, err
	}
	if !left.any {
		p.emptied[s.path] = true
		return true, nil
	}
	p.drop(s)
	into, from := p.o.Into.Name(), p.o.ref()
	isReplaced := !s.becomes.isAbsent()
	switch {
	case p.o.Resolve == conflict.Ours:
	case left.hidden && (isReplaced || p.o.Resolve != conflict.Theirs):
		p.stop(s.path, conflict.HiddenBelow, "%s removed it, and the policy of %s or of %s hides what is in it", from, into, from)
	case isReplaced:
		p.stop(s.path, conflict.TypeChange, "a directory with other changes in %s, and a %s in %s", into, record.TypeName(s.becomes.mode), from)
	}
	return false, nil
}

// remaining is what stays in a directory.
type remaining struct{ any, hidden bool }

// remains finds what the plan leaves below a directory of the sandbox that gets the changes.
func (p *plan) remains(dir vpath.Path, left *remaining) error {
	entries, err := p.ours.work.Stack.ReadDir(dir)
	if errdefs.Is(err, errdefs.Denied) {
		left.any, left.hidden = true, true
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := dir.Child(e.Name)
		if s := p.at[at]; s == nil || s.becomes == nil || !s.becomes.isAbsent() {
			left.any = true
			left.hidden = left.hidden || p.isHidden(at)
		}
		if e.Mode != unix.S_IFDIR || p.emptied[at] {
			continue
		}
		if err := p.remains(at, left); err != nil {
			return err
		}
	}
	return nil
}

// isHidden reports whether the policy of one of the sandboxes hides a path.
func (p *plan) isHidden(at vpath.Path) bool {
	return changes.IsHidden(p.ours.work.Policy, at) || changes.IsHidden(p.theirs.work.Policy, at)
}

// makeWay plans the directories that are missing above s, or takes it out of the plan.
func (p *plan) makeWay(s *step) error {
	for dir := range s.path.Ancestors() {
		if dir.IsRoot() {
			continue
		}
		e, err := p.becomes(dir)
		switch {
		case err != nil:
			return err
		case e.isDir():
		case e.isAbsent():
			made := &entry{mode: unix.S_IFDIR | 0o755}
			if t, err := p.theirs.at(dir); err == nil && t.isDir() {
				made = t
			}
			p.add(&step{path: dir, was: e, becomes: made, implied: true})
		default:
			p.drop(s)
			if p.o.Resolve != conflict.Ours && !p.stopped[dir] {
				p.stop(s.path, conflict.Directory, "in %s %s is a %s", p.o.Into.Name(), changes.Quote(dir), record.TypeName(e.mode))
			}
			return nil
		}
	}
	return nil
}

// checkRights reports what a policy does not permit. No resolution changes that.
func (p *plan) checkRights() {
	mounted := scratch.At(p.o.Into.Stored.Scratch)
	for _, s := range p.steps {
		if s.becomes == nil {
			continue
		}
		isOnMount := false
		for _, at := range mounted {
			isOnMount = isOnMount || s.path.Within(at) || at.Within(s.path) && !s.becomes.isDir()
		}
		switch {
		case isOnMount:
			p.stop(s.path, conflict.Refused, "%s has a scratch directory there", p.o.Into.Name())
		case changes.IsHidden(p.ours.work.Policy, s.path) && !mayChange(p.ours, s):
			p.stop(s.path, conflict.Hidden, "the policy of %s hides it", p.o.Into.Name())
		case !mayChange(p.ours, s):
			p.refuse(s, p.ours, p.o.Into.Name())
		case !s.implied && !mayChange(p.theirs, s):
			p.refuse(s, p.theirs, p.o.From.Name())
		}
	}
}

func (p *plan) refuse(s *step, by *state, name string) {
	d := by.work.Policy.Decide(s.path)
	p.stop(s.path, conflict.Refused, "the policy of %s says %s (%s)", name, d.Permission, d.Reason)
}

// mayChange reports whether the present policy of a state's sandbox permits the step.
func mayChange(of *state, s *step) bool {
	if s.was.isAbsent() && s.becomes.isDir() && of.work.Policy.MayMkdir(s.path) {
		return true
	}
	return of.work.MayWrite(s.path)
}
