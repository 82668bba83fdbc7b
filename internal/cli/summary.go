package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// How much the summary tells.
const (
	summaryRoom    = 13 // lines of denials, changes and groups; two more surround them
	summaryLines   = 8  // of denials where nothing has changed
	summaryDenials = 4
	summaryGroups  = 4
	summaryPlain   = 3 // changes without a mark, at least, where there are so many
	groupMarks     = 4 // kinds of marks of a group
)

// saySummary prints the summary; helping are the lines that tell what would permit
// what was refused.
func (e *env) saySummary(name string, s present.Summary, helping []string, toGo bool) {
	e.sayNetwork(s)
	s.Denials = slices.DeleteFunc(slices.Clone(s.Denials), isHomeProbe)
	if len(s.Files) == 0 {
		e.printDenials(s.Denials, summaryLines-len(helping))
		e.sayLines(helping)
		return
	}
	denied := e.printDenials(s.Denials, summaryDenials) + len(helping)
	e.sayLines(helping)
	groups := fewGroupLines(s.Groups)
	counts := countsOf(&s)
	if own := s.CountOwn(); own > 0 {
		counts[len(counts)-1] += fmt.Sprintf("; %d of them own, never applied", own)
	}
	e.say("%s: %s", name, strings.Join(counts, ", "))
	e.printFiles(s.Files, summaryRoom-denied-len(groups))
	for _, line := range groups {
		fmt.Fprintln(e.stderr, "  "+line)
	}
	if toGo {
		e.say("thrown away with the sandbox: %s", plural(len(s.Files), "change"))
		return
	}
	e.say("%[2]s %[1]s · keep: agentfense apply %[1]s · drop: agentfense discard %[1]s", name, e.howToReview())
}

// howToReview says by which verb whoever reads the summary looks at changes: review needs a
// terminal.
func (e *env) howToReview() string {
	if e.canAsk() {
		return "look: agentfense review"
	}
	return "review: agentfense diff"
}

// isHomeProbe reports whether a refusal is a look at what an agent's profile does not show of the
// home directory, which programs do at each start. The audit log has it.
func isHomeProbe(g present.DenialGroup) bool {
	return (g.Rule == homeCatchAll || strings.HasSuffix(g.Source, hidesLogin)) && strings.HasPrefix(g.Source, mountspec.ProfileSource)
}

// countsOf counts the changes by how they changed.
func countsOf(s *present.Summary) []string {
	counts := make([]string, 0, 4)
	for _, c := range []struct {
		status changes.Status
		word   string
	}{
		{changes.Added, "created"}, {changes.Modified, "modified"}, {changes.Deleted, "deleted"}, {changes.Retyped, "of another type"},
	} {
		if n := s.CountStatus(c.status); n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, c.word))
		}
	}
	return counts
}

// sayMounts counts the changes in mounts, and says what to do about them.
func (e *env) sayMounts(r *record.Record, mounts []backend.MountChanges, toGo bool) {
	name := r.Name
	for _, m := range mounts {
		isHome := slices.ContainsFunc(r.Mounts, func(has record.Mount) bool { return has.Name == m.Mount && has.IsAgentHome() })
		s := present.Summary{Files: slices.DeleteFunc(slices.Clone(m.Files), func(f review.FileDiff) bool { return isHome && f.IsOfAgent() })}
		if len(s.Files) == 0 {
			continue
		}
		if toGo {
			e.say("thrown away with the sandbox: %s in %s", plural(len(s.Files), "change"), m.Mount)
			continue
		}
		counts, marked := countsOf(&s), 0
		for _, f := range s.Files {
			if f.Mark != nil {
				marked++
			}
		}
		if marked > 0 {
			counts = append(counts, e.colour(e.stderr, "33", fmt.Sprintf("! %d with a risk mark", marked)))
		}
		e.say("%[1]s, in %[2]s: %[3]s · %[4]s %[1]s --in %[2]s · keep: agentfense apply %[1]s --in %[2]s · drop: agentfense discard %[1]s --in %[2]s",
			name, m.Mount, strings.Join(counts, ", "), e.howToReview())
	}
}

// printFiles names the changes that are in no group, in at most room lines: the
// marked ones first, but some of the others in any case.
func (e *env) printFiles(files []review.FileDiff, room int) {
	var marked, plain []*review.FileDiff
	for i := range files {
		f := &files[i]
		switch {
		case f.Group != "", f.RenamedTo != "":
		case f.Mark != nil:
			marked = append(marked, f)
		default:
			plain = append(plain, f)
		}
	}
	total := len(marked) + len(plain)
	if total > room {
		room-- // for the last line
		marked = marked[:min(len(marked), max(room-summaryPlain, room-len(plain)))]
		plain = plain[:min(len(plain), room-len(marked))]
	}
	for _, f := range append(marked, plain...) {
		line := fmt.Sprintf("  %s %s", f.Status, shown(f.Path))
		if f.RenamedFrom != "" {
			line = fmt.Sprintf("  R %s → %s", shown(f.RenamedFrom), shown(f.Path))
		}
		switch {
		case f.Own:
			line += "  (own, never applied)"
		case f.LeftOut != "":
			line += "  (" + f.LeftOut + ")"
		case f.NotPlaced != "":
			line += "  (cannot be applied: " + f.NotPlaced + ")"
		}
		if f.Mark != nil {
			line += e.colour(e.stderr, "33", fmt.Sprintf("  ! %s: %s", f.Mark.Risk, f.Mark.Reason))
		}
		fmt.Fprintln(e.stderr, line)
	}
	if rest := total - len(marked) - len(plain); rest > 0 {
		fmt.Fprintf(e.stderr, "  … and %d more\n", rest)
	}
}

// groupLines are the lines that tell of groups, each with its marks.
func groupLines(groups []review.Group) []string {
	var lines []string
	for _, g := range groups {
		lines = append(lines, present.GroupTitle(&g)+marksOf(&g))
		for _, more := range g.Lines[min(1, len(g.Lines)):] {
			lines = append(lines, g.Name+": "+more)
		}
	}
	return lines
}

// fewGroupLines are the first of these lines, the titles before all else and those
// with marks before the others, with how many more there are.
func fewGroupLines(groups []review.Group) []string {
	lines := groupLines(groups)
	if len(lines) <= summaryGroups {
		return lines
	}
	groups = slices.Clone(groups)
	slices.SortStableFunc(groups, func(a, b review.Group) int { return riskOf(&b) - riskOf(&a) })
	var titles []string
	for _, g := range groups[:min(len(groups), summaryGroups-1)] {
		titles = append(titles, present.GroupTitle(&g)+marksOf(&g))
	}
	for _, line := range lines {
		if len(titles) < summaryGroups-1 && !slices.Contains(titles, line) {
			titles = append(titles, line)
		}
	}
	return append(titles, fmt.Sprintf("… and %d more lines about groups", len(lines)-len(titles)))
}

// riskOf is the gravest risk of the group's marks that tell something.
func riskOf(g *review.Group) int {
	risk := 0
	for _, m := range g.Marks {
		if !m.IsUsual() {
			risk = max(risk, int(m.Risk))
		}
	}
	return risk
}

// marksOf counts the marks of a group. It does not tell of git's own state, which
// changes with each commit.
func marksOf(g *review.Group) string {
	var all []string
	for _, m := range g.Marks {
		if !m.IsUsual() {
			all = append(all, fmt.Sprintf("%d %s", len(m.Paths), m.Reason))
		}
	}
	if len(all) == 0 {
		return ""
	}
	if len(all) > groupMarks {
		all = append(all[:groupMarks], "…")
	}
	return "  ! " + strings.Join(all, ", ")
}

// printDenials says what was refused, by rule, in at most room lines, and returns
// how many it took.
func (e *env) printDenials(groups []present.DenialGroup, room int) int {
	for i, g := range groups {
		if i == room-1 && len(groups) > room {
			e.say("… and by %d more rules", len(groups)-i)
			return room
		}
		if g.Omitted {
			e.say("denied %s more: only counted, because the audit log has reached its budget", times(g.Count))
			continue
		}
		rule := "by default: no rule matches"
		switch {
		case g.Rule == "" && g.Source != "":
			rule = "by " + vpath.Escape(present.LocalUntil(g.Source))
		case g.Rule != "" && g.Source == "": // the policy was replaced meanwhile
			rule = "by " + vpath.Quote(secretname.Written(g.Rule))
		case g.Rule != "":
			rule = fmt.Sprintf("by %s (%s)", vpath.Quote(secretname.Written(g.Rule)), vpath.Escape(present.LocalUntil(g.Source)))
		}
		e.say("denied %s: %s %s", times(g.Count), strings.Join(g.Paths, ", "), rule)
	}
	return len(groups)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
