package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/advise"
)

// maxAdvice is how many flags are named.
const maxAdvice = 4

// way is how flags are added to what a sandbox may.
type way struct {
	before string // the command that takes them
	add    func(rules []policy.Rule, flag policy.Rule) []policy.Rule
}

// again is to run the same command with them too.
var again = way{add: advise.Append}

// widening is to add them to the policy of a sandbox.
func widening(name string) way { return way{"agentfense policy set " + name + " ", advise.Replace} }

// advice are the lines that tell which flags would permit what was refused under
// rules, and what no flag permits. isDir tells of a path of the source whether it
// is a directory.
func advice(refused []advise.Refused, rules []policy.Rule, reserved []vpath.Path, isDir func(string) bool, w way) []string {
	if len(refused) == 0 {
		return nil
	}
	asked := slices.Clone(refused)
	for i := range asked {
		asked[i].Dir = asked[i].Dir || isDir(asked[i].Path.Rel())
	}
	a, err := advise.Flags(rules, policy.Options{Reserved: reserved}, asked, w.add)
	if err != nil {
		return nil // advice is no reason to fail
	}
	if len(a.Flags) > maxAdvice {
		if wide, err := advise.Flags(rules, policy.Options{Reserved: reserved}, directoriesOf(asked), w.add); err == nil && len(wide.Flags) < len(a.Flags) {
			a = wide
		}
	}
	var lines []string
	if len(a.Flags) > 0 {
		lines = append(lines, "to allow: "+w.before+joinFlags(a.Flags))
	}
	if len(a.Stuck) > 0 {
		line := "no flag allows " + shown(a.Stuck[0].Path) + ": " + a.Stuck[0].Why
		if more := len(a.Stuck) - 1; more > 0 {
			line += " (and " + plural(more, "more path") + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

// mountAdvice are the lines that say how commands could write in mounts of the record.
func mountAdvice(names []string, r record.Record) []string {
	var lines []string
	for _, m := range r.Mounts {
		switch source, target := string(m.Source), string(m.Target); {
		case !slices.Contains(names, m.Name):
		case m.Mode == mountspec.ReadOnly && !strings.ContainsAny(source+target, ":,"):
			lines = append(lines, fmt.Sprintf("to allow: writes in %s, which wait for a review: agentfense run --name %s --mount %s", m.Name, r.Name, policy.QuoteForShell(source+":"+target+":"+string(mountspec.CopyOnWrite))))
		case m.Mode == mountspec.ReadOnly:
			lines = append(lines, fmt.Sprintf("to allow: writes in %s, which wait for a review: give its --mount the mode %s", m.Name, mountspec.CopyOnWrite))
		case m.IsAgentHome():
			lines = append(lines, fmt.Sprintf("to allow: writes in %s: change the agent's profile (agentfense profile --help)", m.Name))
		case m.Mode == mountspec.PolicyFile:
			lines = append(lines, fmt.Sprintf("to allow: writes in %s: change the policy file of its --mount", m.Name))
		case m.Mode.HasRules():
			lines = append(lines, fmt.Sprintf("to allow: writes in %s: give its --mount another mode, such as policy=FILE", m.Name))
		}
	}
	return lines
}

// directoriesOf puts in place of each path below the root the directory it is in.
func directoriesOf(refused []advise.Refused) []advise.Refused {
	wide := slices.Clone(refused)
	for i, r := range wide {
		if dir := r.Path.Dir(); !dir.IsRoot() {
			wide[i].Path, wide[i].Dir = dir, true
		}
	}
	return wide
}

func joinFlags(flags []policy.Flag) string {
	var texts []string
	for _, f := range flags[:min(len(flags), maxAdvice)] {
		texts = append(texts, f.String())
	}
	if len(flags) > maxAdvice {
		texts = append(texts, "…")
	}
	return strings.Join(texts, " ")
}

func (e *env) sayLines(lines []string) {
	for _, line := range lines {
		e.say("%s", line)
	}
}
