package cli

import (
	"fmt"
	"strings"

	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// summaryLines is how many files and how many rules the summary names.
const summaryLines = 8

// lastSeq returns the number of the last record of a log, 0 if there is none.
func lastSeq(path string) (uint64, error) {
	var last uint64
	err := audit.Read(path, func(r audit.Record) error {
		last = max(last, r.Seq)
		return nil
	})
	if fault.Is(err, fault.NotFound) {
		return 0, nil
	}
	return last, err
}

// printSummary says after a run, on stderr, what the sandbox changed, what it
// was refused since the audit record afterSeq, and what to do now, or that the
// sandbox is to go with its changes. It says nothing where nothing happened.
func (e *env) printSummary(sb *sandbox.Sandbox, afterSeq uint64, toGo bool) error {
	p := e.progress("looking at what changed")
	s, err := sb.Summarise(afterSeq)
	p.stop()
	if err != nil {
		return err
	}
	e.saySummary(sb.Name(), s, toGo)
	return nil
}

func (e *env) saySummary(name string, s sandbox.Summary, toGo bool) {
	if len(s.Denials) > 0 {
		e.printDenials(s.Denials)
	}
	if len(s.Files) == 0 {
		return
	}
	counts := make([]string, 0, 4)
	for _, c := range []struct {
		status sandbox.Status
		word   string
	}{
		{sandbox.Added, "created"}, {sandbox.Modified, "modified"}, {sandbox.Deleted, "deleted"}, {sandbox.Retyped, "of another type"},
	} {
		if n := s.CountStatus(c.status); n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, c.word))
		}
	}
	e.say("%s: %s", name, strings.Join(counts, ", "))
	for i, f := range s.Files {
		if i == summaryLines {
			fmt.Fprintf(e.stderr, "  … and %d more\n", len(s.Files)-i)
			break
		}
		line := fmt.Sprintf("  %s %s", f.Status, shown(f.Path))
		if f.Mark != nil {
			line += e.colour(e.stderr, "33", fmt.Sprintf("  ! %s: %s", f.Mark.Risk, f.Mark.Reason))
		}
		fmt.Fprintln(e.stderr, line)
	}
	if toGo {
		e.say("thrown away (--rm): %s", plural(len(s.Files), "change"))
		return
	}
	e.say("review: agentfense diff %[1]s · keep: agentfense apply %[1]s · drop: agentfense discard %[1]s", name)
}

// printDenials says what was refused, by rule.
func (e *env) printDenials(groups []sandbox.DenialGroup) {
	for i, g := range groups {
		if i == summaryLines {
			e.say("… and by %d more rules", len(groups)-i)
			return
		}
		if g.Omitted {
			e.say("denied %s more: only counted, because the audit log has reached its budget", times(g.Count))
			continue
		}
		rule := "by default: no rule matches"
		if g.Rule != "" {
			rule = fmt.Sprintf("by %s (%s)", vpath.Quote(policy.Written(g.Rule)), vpath.Escape(g.Source))
		}
		e.say("denied %s: %s %s", times(g.Count), strings.Join(g.Paths, ", "), rule)
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
