package present

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/advise"
)

// Summary is what a person is told when a run has ended.
type Summary struct {
	// Files are the changed paths, as review.Review.Files has them.
	Files []review.FileDiff
	// Groups are what some of them are shown in.
	Groups []review.Group
	// Denials are what the policy refused, by rule, the most frequent first.
	Denials []DenialGroup
	// Refused are the paths of these refusals, each once, as far as they are kept.
	Refused []advise.Refused
	// RefusedMounts are the mounts in which something was not written, by name.
	RefusedMounts []string
	// Hosts are those that were reached over the network, and HostRefusals what was refused of it.
	Hosts        []HostUse
	HostRefusals []HostRefusal
	Ports        []PortUse
}

// DenialGroup is what one rule refused.
type DenialGroup struct {
	Rule   string // its pattern, "" for no rule: the default
	Source string // where the rule is from
	Count  int
	Paths  []string // the first few, each once, as Written has them
	// Omitted are refusals that the audit log only counts, by whichever rule.
	Omitted bool
}

const (
	maxDenialPaths = 5  // of a group that are kept
	maxRefused     = 16 // paths of all groups that are kept
)

// CountStatus returns how many paths have the status.
func (s *Summary) CountStatus(status changes.Status) int {
	n := 0
	for _, f := range s.Files {
		if f.Status == status {
			n++
		}
	}
	return n
}

// Summarise sums up what a review lists, and the refusals among the audit records that
// read calls do with. A look at a name at which there is an own entry now counts as
// none: cp and mv look at it before they make it. Errors: those of read.
func Summarise(r *review.Review, read func(do func(audit.Record) error) error) (Summary, error) {
	sum := Summary{Files: r.Files(), Groups: r.Groups()}
	d := denials{groups: map[denialKey]*DenialGroup{}, at: map[vpath.Path]int{}, own: sum.ownPaths()}
	var n NetworkSum
	err := read(func(r audit.Record) error {
		n.Add(r)
		return d.add(r)
	})
	if err != nil {
		return sum, err
	}
	sum.Denials, sum.Refused, sum.RefusedMounts = d.list(), d.refused, d.mounts
	sum.Hosts, sum.HostRefusals, sum.Ports = n.Used(), n.Refused(), n.Ports()
	return sum, nil
}

// RefusedTo sums up what one command was refused; changed are the paths that it
// made or changed.
func RefusedTo(refusals []audit.PermissionDenied, changed []vpath.Path) Summary {
	var sum Summary
	for _, p := range changed { // where the policy hides one, it is an own entry
		sum.Files = append(sum.Files, review.FileDiff{Path: p, Status: changes.Added, Own: true})
	}
	d := denials{groups: map[denialKey]*DenialGroup{}, at: map[vpath.Path]int{}, own: sum.ownPaths()}
	for _, r := range refusals {
		d.sum(r)
	}
	return Summary{Denials: d.list(), Refused: d.refused, RefusedMounts: d.mounts}
}

// ownPaths are the paths of own entries, and the directories above. Of these, one
// that the policy hides is an own entry, too: else nothing could be made in it.
func (s *Summary) ownPaths() map[vpath.Path]bool {
	own := map[vpath.Path]bool{}
	for _, f := range s.Files {
		if !f.Own || f.Status == changes.Deleted {
			continue
		}
		for at := f.Path; !own[at]; at = at.Dir() {
			own[at] = true
		}
	}
	return own
}

// CountOwn returns how many changes are of own entries.
func (s *Summary) CountOwn() int {
	n := 0
	for _, f := range s.Files {
		if f.Own {
			n++
		}
	}
	return n
}

type denialKey struct{ rule, source string }

// denials sums up refusals.
type denials struct {
	groups  map[denialKey]*DenialGroup
	omitted int
	refused []advise.Refused
	mounts  []string
	at      map[vpath.Path]int // of refused
	own     map[vpath.Path]bool
}

func (d *denials) add(r audit.Record) error {
	if o, ok := r.Event.(audit.EventsOmitted); ok {
		d.omitted += int(o.Refusals())
	}
	if e, ok := r.Event.(audit.PermissionDenied); ok {
		d.sum(e)
	}
	return nil
}

// noRuleReads is the source of a refusal at a path that can be read though no rule decided: the
// default is none. A server that is too old, or a token that may not know the policy, does not say
// whose lock it is.
const noRuleReads = "a lock of another sandbox, or a mount at this path"

// keyOf is the group of a refusal.
func keyOf(e audit.PermissionDenied) denialKey {
	k := denialKey{string(e.Rule), string(e.RuleSource)}
	if k == (denialKey{}) && e.Permission == policy.Read.String() {
		k.source = noRuleReads
	}
	return k
}

// sum adds one refusal, or several alike.
func (d *denials) sum(e audit.PermissionDenied) {
	if e.Mount == "" && e.Permission == policy.None.String() && d.own[vpath.Path(e.Path)] {
		return
	}
	k := keyOf(e)
	g := d.groups[k]
	if g == nil {
		g = &DenialGroup{Rule: k.rule, Source: k.source}
		d.groups[k] = g
	}
	g.Count += max(e.Count, 1)
	path := record.HostPath(e.Path).String()
	switch {
	case e.Mount != "":
		path = InMount(e.Mount, path)
	case strings.HasPrefix(path, "/"): // else the log is damaged
		path = Written(vpath.Path(e.Path))
	}
	if len(g.Paths) < maxDenialPaths && !slices.Contains(g.Paths, path) {
		g.Paths = append(g.Paths, path)
	}
	if e.Mount != "" && needsWrite(e) && !slices.Contains(d.mounts, e.Mount) {
		d.mounts = append(d.mounts, e.Mount)
	}
	if e.PathSHA256 == "" && e.Mount == "" { // no flag is for the rules of a mount
		d.note(vpath.Path(e.Path), e)
	}
}

// InMount is how a path of the mount is written; "" is the workspace.
func InMount(mount, path string) string {
	if mount == "" {
		return path
	}
	return mount + ":" + path
}

// note keeps what would have permitted the operation at path.
func (d *denials) note(path vpath.Path, e audit.PermissionDenied) {
	if e.RuleIndex < 0 && e.RuleSource != "" {
		return // a lock, which no flag ends
	}
	if checked, err := vpath.Parse(string(path)); err != nil || checked != path || path.IsOwn() {
		return // the log is damaged
	}
	want := advise.Refused{Path: path, Need: policy.Read, Dir: e.Operation == "mkdir" || e.Operation == "rmdir"}
	have, err := policy.ParsePermission(e.Permission)
	if err != nil {
		return
	}
	if have >= policy.Read || slices.Contains(changing, e.Operation) {
		want.Need = policy.Write
	}
	i, ok := d.at[path]
	switch {
	case ok:
		r := &d.refused[i]
		r.Need, r.Dir = max(r.Need, want.Need), r.Dir || want.Dir
	case len(d.refused) < maxRefused:
		d.at[path] = len(d.refused)
		d.refused = append(d.refused, want)
	}
}

// needsWrite reports whether write would have permitted what was refused, and nothing less.
func needsWrite(e audit.PermissionDenied) bool {
	have, err := policy.ParsePermission(e.Permission)
	return err == nil && have >= policy.Read || slices.Contains(changing, e.Operation)
}

// changing are the operations of refusals that need write, whatever the path has.
var changing = []string{
	"create", "mkdir", "mknod", "symlink", "link", "bind", "rename", "unlink", "rmdir",
	"truncate", "write", "chmod", "chown", "utimensat", "setattr", "setxattr", "connect",
}

func (d *denials) list() []DenialGroup {
	list := make([]DenialGroup, 0, len(d.groups))
	for _, g := range d.groups {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b DenialGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Source, b.Source))
	})
	if d.omitted > 0 {
		list = append(list, DenialGroup{Count: d.omitted, Omitted: true})
	}
	return list
}

// GroupTitle is the first line that shows a group.
func GroupTitle(g *review.Group) string {
	title := fmt.Sprintf("%s: %s", g.Name, review.Count(g.Count, "file"))
	if len(g.Lines) > 0 {
		title += ", " + g.Lines[0]
	}
	return title
}
