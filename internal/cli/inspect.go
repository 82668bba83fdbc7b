package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// inspection is the JSON document of `inspect`: the record as it is stored,
// and what runs.
type inspection struct {
	SchemaVersion int             `json:"schema_version"`
	Record        record.Record   `json:"record"`
	Status        string          `json:"status"`
	Running       *api.Status     `json:"running,omitempty"`
	Directory     record.HostPath `json:"directory"`
	AuditLog      record.HostPath `json:"audit_log"`
	// Variables are the names of those that run --env gave; not their values.
	Variables []record.HostPath `json:"variables,omitempty"`
	// Secrets are those of a server.
	Secrets []backend.ServerSecret `json:"secrets,omitempty"`
}

func newInspect(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show what a sandbox is: source, policy, limits, what runs",
		Example: `  agentfense inspect fix
  agentfense inspect fix --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return runInspect(ctx, e, b, args[0], asJSON) })
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func runInspect(ctx context.Context, e *env, b backend.Backend, name string, asJSON bool) error {
	in, err := b.Inspect(ctx, name)
	if err != nil {
		return err
	}
	return e.printInspection(inspection{
		SchemaVersion: schemaVersion, Record: in.Record, Status: string(in.Status), Running: in.Running,
		Directory: in.Directory, AuditLog: in.AuditLog, Variables: in.Variables, Secrets: in.Secrets,
	}, asJSON)
}

func (e *env) printInspection(doc inspection, asJSON bool) error {
	if asJSON {
		return e.printJSON(doc)
	}
	rows := slices.DeleteFunc(doc.rows(), func(row []string) bool { return row[0] != "" && row[1] == "" })
	return printRows(e.stdout, rows)
}

func (d inspection) rows() [][]string {
	r := d.Record
	rows := [][]string{
		{"name:", r.Name},
		{"id:", string(r.ID)},
		{"status:", d.Status},
		{"source:", r.Source.Path.String()},
		{"workspace:", record.HostPath(r.Workspace).String()},
		{"created:", present.LocalTime(r.CreatedAt)},
		{"runtime:", strings.TrimSpace(r.Runtime + " " + r.Image)},
		{"user:", userText(r)},
		{"network:", networkText(&r, len(r.Secrets)+len(d.Secrets) > 0)},
		{"state:", d.Directory.String()},
		{"audit log:", d.AuditLog.String()},
	}
	if r.NetLimits != "" {
		rows = append(rows, []string{"net limits:", r.NetLimits})
	}
	for _, s := range r.Secrets {
		rows = append(rows, []string{"secret:", secretText(s)})
	}
	for _, p := range r.Places() {
		rows = append(rows, []string{"published:", published.Text(p)})
	}
	for _, s := range d.Secrets {
		rows = append(rows, []string{"secret:", s.Name + " of the server for " + strings.Join(s.Hosts, ", ")})
	}
	for _, m := range r.Mounts {
		rows = append(rows, []string{"mount:", mountText(m)})
	}
	for _, path := range r.Scratch {
		rows = append(rows, []string{"scratch:", path.String()})
	}
	if r.Git.IsClean() {
		rows = append(rows, []string{"git:", cleanText(r.Git)})
	}
	if r.Board {
		rows = append(rows, []string{"board:", "programs inside may use it"})
	}
	for _, name := range d.Variables {
		rows = append(rows, []string{"variable:", name.String()})
	}
	if r.Home == record.HomeKeep {
		rows = append(rows, []string{"home:", "kept, at " + record.KeptHomeInside})
	}
	rows = append(rows, limitRows(r.Limits)...)
	rows = append(rows, servedRows(r.Served)...)
	if d.Running != nil {
		rows = append(rows, []string{"supervisor:", fmt.Sprintf("process %d, %s running", d.Running.PID, plural(d.Running.Execs, "command"))},
			[]string{"enforced by:", strings.Join(d.Running.Enforced, ", ")})
	}
	rows = append(rows, []string{"policy:", r.PolicyNote})
	return append(rows, ruleRows(r.Rules)...)
}

// ruleRows tell of each rule, with its priority. Of the rules that hide the names
// of secrets only how many there are.
func ruleRows(rules []policy.Rule) [][]string {
	var rows [][]string
	secrets := map[string]bool{}
	for _, s := range secretname.All() {
		secrets[s.Pattern] = true
	}
	hidden := map[bool]int{} // by whether the rule is own
	for _, rule := range rules {
		if rule.Origin == policy.OriginRule && rule.Permission == policy.None && rule.Priority == preset.SecretPriority && secrets[rule.Pattern] {
			hidden[rule.Own]++
			continue
		}
		rows = append(rows, []string{"", fmt.Sprintf("%s%s, priority %d", present.LocalUntil(rule.String()), makingAt(rule), rule.Priority)})
	}
	for _, own := range []bool{true, false} {
		if n := hidden[own]; n > 0 {
			making := makingAt(policy.Rule{Own: own})
			rows = append(rows, []string{"", fmt.Sprintf("none rules for %s of secrets%s, priority %d (see --json)", plural(n, "name"), making, preset.SecretPriority)})
		}
	}
	return rows
}

// makingAt says what may be made where a rule hides: an own entry, or nothing.
func makingAt(rule policy.Rule) string {
	switch {
	case rule.Permission != policy.None:
		return ""
	case rule.Own:
		return ", own"
	}
	return ", strict"
}

// userText says who a command is inside.
func userText(r record.Record) string {
	switch {
	case r.UID == nil:
		return "who runs the sandbox"
	case r.HostUID != 0 && r.HostUID != *r.UID:
		return fmt.Sprintf("%d, on the host %d", *r.UID, r.HostUID)
	}
	return fmt.Sprint(*r.UID)
}

// servedRows tell what a server's sandbox is besides.
func servedRows(s *record.Served) [][]string {
	if s == nil {
		return nil
	}
	rows := [][]string{{"codebase:", s.CodebaseID}, {"owner:", vpath.Escape(s.OwnerID)}}
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		rows = append(rows, []string{"label:", vpath.Escape(name + "=" + s.Labels[name])})
	}
	if !s.ExpiresAt.IsZero() {
		rows = append(rows, []string{"expires:", present.LocalTime(s.ExpiresAt)})
	}
	if s.Failure != "" {
		rows = append(rows, []string{"failure:", vpath.Escape(s.Failure)})
	}
	return rows
}

func limitRows(l record.Limits) [][]string {
	var rows [][]string
	add := func(name, value string, set bool) {
		if set {
			rows = append(rows, []string{name, value})
		}
	}
	add("memory.max:", formatBytes(l.MemoryBytes), l.MemoryBytes > 0)
	add("cpu.max:", fmt.Sprintf("%g processors", l.CPUs), l.CPUs > 0)
	add("cpu.shares:", fmt.Sprint(l.CPUShares), l.CPUShares > 0)
	add("pids.max:", fmt.Sprint(l.PIDs), l.PIDs > 0)
	add("disk:", formatBytes(l.DiskBytes), l.DiskBytes > 0)
	add("timeout:", time.Duration(l.Timeout).String(), l.Timeout > 0)
	return rows
}

// mountText describes a mount. One that 0.3.0 stored has no name.
func mountText(m record.Mount) string {
	text := m.Source.String() + " at " + m.Target.String()
	if m.Name == "" {
		return text
	}
	return text + " (" + m.Name + ", " + string(m.Mode) + ")"
}
