package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

type auditOptions struct {
	Follow bool
	JSON   bool
	Format string
	Net    bool
	Verify bool
	Heads  []string // for Verify

	OTLP    string // URL
	Archive string // file
	Prune   time.Duration
}

func newAudit(e *env) *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit NAME",
		Short: "Show what happened in a sandbox: commands, refusals, changes",
		Long: `Show a sandbox's audit log. NAME may be the id of a sandbox that was removed. With
--json each record is printed as it is stored, one compact object a line
(docs/audit.md).`,
		Example: `  agentfense audit fix
  agentfense audit fix --json
  agentfense audit fix --net
  agentfense audit fix --format ocsf
  agentfense audit fix --otlp http://localhost:4318
  agentfense audit fix --follow
  agentfense audit fix --verify
  agentfense audit fix --archive fix-2026.jsonl
  agentfense audit --prune 240h`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		prune := cmd.Flags().Changed("prune")
		switch {
		case prune && len(args) > 0:
			return usageError{errdefs.New(errdefs.Invalid, "--prune is for the logs of all removed sandboxes: it takes no NAME")}
		case !prune && len(args) == 0:
			return usageError{errdefs.New(errdefs.Invalid, "audit: give the NAME of a sandbox (see `agentfense audit --help`)")}
		case prune:
			return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return pruneAudit(ctx, e, b, o.Prune) })
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return runAudit(ctx, e, b, args[0], o) })
	}
	f := cmd.Flags()
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on with what happens from now on, until interrupted")
	f.BoolVar(&o.Net, "net", false, "sum up the network: hosts, bytes, rules, refusals; with --json as one document")
	f.BoolVar(&o.Verify, "verify", false, "check that no record was changed, removed or moved")
	f.BoolVar(&o.JSON, "json", false, "print each record as it is stored, one a line")
	f.StringVar(&o.Format, "format", formatText, "text, json (as --json) or ocsf: events of the Open Cybersecurity Schema Framework, one a line")
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(auditFormats, cobra.ShellCompDirectiveNoFileComp))
	f.StringArrayVar(&o.Heads, "head", nil, "with --verify: check that the log still has the record `SEQ:HASH`, which an earlier --verify printed")
	f.StringVar(&o.OTLP, "otlp", "", "send the records to the OpenTelemetry collector at `URL`, as run --otlp does while a command runs")
	f.StringVar(&o.Archive, "archive", "", "move the records into the new `FILE`; new records continue the log")
	f.DurationVar(&o.Prune, "prune", 0, "delete the logs of sandboxes that were removed longer ago than `DURATION`, such as 240h")
	cmd.MarkFlagsMutuallyExclusive("archive", "follow", "verify", "json", "prune")
	cmd.MarkFlagsMutuallyExclusive("archive", "follow", "verify", "net", "prune", "otlp")
	cmd.MarkFlagsMutuallyExclusive("json", "otlp")
	for _, flag := range []string{"json", "net", "otlp", "verify", "archive", "prune"} {
		cmd.MarkFlagsMutuallyExclusive("format", flag)
	}
	cmd.MarkFlagsMutuallyExclusive("follow", "verify")
	cmd.MarkFlagsMutuallyExclusive("follow", "head")
	cmd.MarkFlagsMutuallyExclusive("json", "head")
	cmd.MarkFlagsMutuallyExclusive("json", "verify")
	return cmd
}

func runAudit(ctx context.Context, e *env, b backend.Backend, name string, o auditOptions) error {
	if len(o.Heads) > 0 && !o.Verify {
		return usageError{errdefs.New(errdefs.Invalid, "--head is for --verify (see `agentfense audit --help`)")}
	}
	if !slices.Contains(auditFormats, o.Format) {
		return usageError{errdefs.New(errdefs.Invalid, "--format %s: want text, json or ocsf%s", vpath.Quote(o.Format), didYouMean(o.Format, auditFormats))}
	}
	switch {
	case o.Archive != "":
		return b.ArchiveAudit(ctx, name, o.Archive)
	case o.OTLP != "":
		return e.exportAudit(ctx, b, name, o.OTLP)
	case o.Net:
		return e.auditNet(ctx, b, name, o.JSON)
	case o.Verify:
		return e.verifyAudit(ctx, b, name, o.Heads)
	}
	show := func(ctx context.Context) error { return b.Audit(ctx, name, 0, o.Follow, e.recordPrinter(o)) }
	if o.Follow {
		return untilInterrupted(ctx, show)
	}
	return show(ctx)
}

// pruneAudit deletes the logs of sandboxes that were removed longer ago than age.
func pruneAudit(ctx context.Context, e *env, b backend.Backend, age time.Duration) error {
	if age < 0 {
		return usageError{errdefs.New(errdefs.Invalid, "--prune %s: want a duration of 0 or more", age)}
	}
	n, err := b.PruneAudit(ctx, age)
	if n > 0 || err == nil {
		fmt.Fprintf(e.stdout, "%s deleted\n", plural(n, "log"))
	}
	return err
}

// untilInterrupted does something that ends well when we are told to end.
func untilInterrupted(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := do(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// The forms in which records are printed.
const (
	formatText = "text"
	formatJSON = "json"
	formatOCSF = "ocsf"
)

var auditFormats = []string{formatText, formatJSON, formatOCSF}

func (e *env) recordPrinter(o auditOptions) func(audit.Record) error {
	switch {
	case o.JSON, o.Format == formatJSON:
		return func(r audit.Record) error { return printRaw(e.stdout, r) }
	case o.Format == formatOCSF:
		return func(r audit.Record) error { return printOCSF(e.stdout, r) }
	}
	return func(r audit.Record) error { return printRecord(e.stdout, r) }
}

func (e *env) verifyAudit(ctx context.Context, b backend.Backend, name string, heads []string) error {
	known := make([]audit.Head, len(heads))
	for i, text := range heads {
		var err error
		if known[i], err = audit.ParseHead(text); err != nil {
			return usageError{errdefs.New(errdefs.Invalid, "--head %s: %w", vpath.Quote(text), err)}
		}
	}
	summary, err := b.VerifyAudit(ctx, name, known)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d records, whole; head %s\n", summary.Records, summary.Head)
	if summary.Archived > 0 {
		text += fmt.Sprintf("the records up to %d are in an archive: verify that, too\n", summary.Archived)
	}
	if summary.Gaps > 0 {
		text += plural(summary.Gaps, "gap record") + " among them"
		if summary.Lost > 0 {
			text += fmt.Sprintf(", for %d events or records lost", summary.Lost)
		}
		text += "\n"
	}
	if summary.Torn {
		text += "it ends in an interrupted write, for which the next record will account\n"
	}
	if summary.NoHeadFile {
		text += "no head beside it: nothing tells whether records at its end were removed\n"
	}
	_, err = io.WriteString(e.stdout, text)
	return err
}

// printRaw prints a record as it is stored. A line that is none cannot be
// trusted to be printable.
func printRaw(w io.Writer, r audit.Record) error {
	text := r.Raw
	if m, bad := r.Event.(audit.Malformed); bad {
		var err error
		text, err = json.Marshal(struct {
			Event  audit.Kind `json:"event"`
			Line   int        `json:"line"`
			Reason string     `json:"reason"`
		}{m.Kind(), r.Line, m.Reason})
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s\n", vpath.EscapeJSON(text))
	return err
}

// printRecord prints a record on one line for people.
func printRecord(w io.Writer, r audit.Record) error {
	at := r.Time.Local().Format("2006-01-02 15:04:05.000")
	text := describeEvent(r.Event)
	if _, made := r.Event.(audit.SandboxCreated); made && r.CodebaseID != "" {
		text += fmt.Sprintf(", codebase %s of %s", escape(r.CodebaseID), escape(r.UserID))
	}
	_, err := fmt.Fprintf(w, "%s  %-24s %s\n", at, r.Event.Kind(), text)
	return err
}

// describeEvent says an event in a few words, escaped.
func describeEvent(ev audit.Event) string {
	switch v := ev.(type) {
	case audit.SandboxCreated:
		return fmt.Sprintf("%s, %s, network %s", escape(v.Source), plural(len(v.Rules), "rule"), v.Net)
	case audit.SandboxStarted:
		return fmt.Sprintf("supervisor %d; %s", v.PID, strings.Join(v.Enforced, ", "))
	case audit.CommandExecuted:
		return fmt.Sprintf("%s %s %s in %d ms", v.Exec, joinTexts(v.Argv), describeEnd(v), v.DurationMS)
	case audit.PermissionDenied:
		return describeDenial(v)
	case audit.FileChanged:
		return describeChanges(v)
	case audit.ResourceLimitExceeded:
		return describeLimit(v)
	case audit.HostsChanged:
		return describeHosts(v)
	case audit.PolicyChanged:
		return fmt.Sprintf("%s from now on, %s", plural(len(v.Rules), "rule"), vpath.Escape(v.Reason))
	case audit.Applied:
		return describeApplied(v)
	case audit.Discarded:
		return fmt.Sprintf("%s: %s", plural(len(v.Paths), "path"), joinTexts(inMount(v.Mount, v.Paths)))
	case audit.SandboxRebased:
		return "onto the directory that is at " + escape(v.Source) + " now"
	case audit.ChangesImported:
		return fmt.Sprintf("%s from %s", plural(int(v.Changes), "change"), escape(v.File))
	case audit.SandboxStopped:
		return escape(v.Reason)
	case audit.AccessAsked, audit.AccessAnswered, audit.AsksSuppressed, audit.LocksChanged, audit.MessagePosted, audit.ApplyRequested:
		return describeAsk(v)
	}
	return describeSession(ev)
}

// describeApplied says what was applied, and where to.
func describeApplied(v audit.Applied) string {
	where := ""
	switch {
	case v.Branch != "":
		where = fmt.Sprintf(" to branch %s as %s", escape(v.Branch), escape(audit.Text(v.Commit)))
	case v.To != "":
		where = " to " + escape(v.To)
	}
	return fmt.Sprintf("%s%s: %s", plural(len(v.Paths), "path"), where, joinTexts(inMount(v.Mount, v.Paths)))
}

// describeLimit says which limit was reached, of a command or of the network.
func describeLimit(v audit.ResourceLimitExceeded) string {
	text := fmt.Sprintf("%s: limit %.15g reached", vpath.Escape(v.Resource), v.Limit)
	if v.Exec == "" {
		return text
	}
	return fmt.Sprintf("%s %s, %d times", v.Exec, text, v.Count)
}

// describeHosts says which hosts were granted and revoked, and why.
func describeHosts(v audit.HostsChanged) string {
	var parts []string
	if len(v.Granted) > 0 {
		parts = append(parts, "granted "+joinTexts(v.Granted))
	}
	if len(v.Revoked) > 0 {
		parts = append(parts, "revoked "+joinTexts(v.Revoked))
	}
	return fmt.Sprintf("%s, %s allowed from now on, %s", strings.Join(parts, ", "), plural(len(v.AllowNet), "host"), vpath.Escape(v.Reason))
}

// describeSession says that a session began or ended, or what was undone.
func describeSession(ev audit.Event) string {
	switch v := ev.(type) {
	case audit.Undone:
		return fmt.Sprintf("%s of %s: %s", plural(len(v.Paths), "path"), vpath.Escape(v.Of), joinTexts(inMount(v.Mount, v.Paths)))
	case audit.SessionCreated:
		return fmt.Sprintf("%s %s", vpath.Escape(v.Session), escape(v.Shell))
	case audit.SessionClosed:
		return fmt.Sprintf("%s %s after %d ms", vpath.Escape(v.Session), vpath.Escape(v.Reason), v.DurationMS)
	case audit.SnapshotChanged:
		return describeSnapshot(v)
	case audit.Merged:
		return fmt.Sprintf("%s of %s; what was there is %s: %s", plural(len(v.Paths), "path"), escape(v.From), vpath.Escape(v.Kept), joinTexts(v.Paths))
	}
	return describeOwnEvent(ev)
}

// wentTo says where a connection went.
func wentTo(v audit.NetworkAllowed) string {
	switch {
	case v.Proxy == "":
		return v.Address
	case v.Address == "":
		return "what the proxy " + escape(v.Proxy) + " resolves"
	}
	return v.Address + " by the proxy " + escape(v.Proxy)
}

// describeNetwork says what went out, or was not let out.
func describeNetwork(ev audit.Event) string {
	switch v := ev.(type) {
	case audit.NetworkAllowed:
		text := fmt.Sprintf("%s port %d by %s", escape(v.Host), v.Port, escape(v.Rule))
		switch {
		case v.Error != "":
			return text + ": " + escape(v.Error)
		case v.SentBytes < 0:
			return text + ", to " + wentTo(v)
		}
		if v.Requests > 0 {
			text += ", " + plural(int(v.Requests), "request")
		}
		return fmt.Sprintf("%s, to %s, %d bytes out, %d in", text, wentTo(v), v.SentBytes, v.ReceivedBytes)
	case audit.NetworkDenied:
		text := cmp.Or(escape(v.Host), vpath.Escape(v.Socket))
		if v.Program != "" {
			text += " to " + escape(v.Program)
		}
		if v.Port != 0 {
			text += fmt.Sprintf(" port %d", v.Port)
		}
		if v.Protocol != "" {
			text += " (" + vpath.Escape(v.Protocol) + ")"
		}
		text += ": " + escape(v.Reason)
		if v.Count > 1 {
			text += fmt.Sprintf(", %d times", v.Count)
		}
		return text
	case audit.PortConnected:
		return describeInbound(v)
	}
	return ""
}

// describeInbound tells of a connection to a published port.
func describeInbound(v audit.PortConnected) string {
	text := fmt.Sprintf("to port %d, published at %s:%d", v.Port, v.Address, v.HostPort)
	switch {
	case v.Error != "":
		return text + ": " + escape(v.Error)
	case v.SentBytes < 0:
		return text
	}
	return fmt.Sprintf("%s, %d bytes out, %d in", text, v.SentBytes, v.ReceivedBytes)
}

// describeOwnEvent says what happened to the log itself.
func describeOwnEvent(ev audit.Event) string {
	switch v := ev.(type) {
	case audit.EventsOmitted:
		return describeOmitted(v)
	case audit.Archived:
		return fmt.Sprintf("the records up to %d are in another file", v.Records)
	case audit.Gap:
		return fmt.Sprintf("%s: %d bytes, %d records lost", vpath.Escape(v.Reason), v.Bytes, v.Lost)
	case audit.Malformed:
		return vpath.Escape(v.Reason)
	}
	return describeNetwork(ev)
}

// maxListed is how many names a line shows.
const maxListed = 8

// inMount writes paths of a mount; "" is the workspace.
func inMount(mount string, paths []audit.Text) []audit.Text {
	if mount == "" {
		return paths
	}
	list := make([]audit.Text, len(paths))
	for i, p := range paths {
		list[i] = audit.Text(present.InMount(mount, string(p)))
	}
	return list
}

func joinTexts(list []audit.Text) string {
	var parts []string
	for i, t := range list {
		if i == maxListed {
			parts = append(parts, fmt.Sprintf("… (%d in all)", len(list)))
			break
		}
		parts = append(parts, escape(t))
	}
	return strings.Join(parts, " ")
}

func escape(t audit.Text) string { return vpath.Escape(string(t)) }

func describeEnd(v audit.CommandExecuted) string {
	switch {
	case v.TimedOut:
		return "timed out"
	case v.OOMKilled:
		return "out of memory"
	case v.Signal != "":
		return v.Signal
	case v.Error != "":
		return "not started: " + escape(v.Error)
	}
	return fmt.Sprintf("exit %d", v.ExitCode)
}

func describeDenial(v audit.PermissionDenied) string {
	rule, source := "no rule", present.LocalUntil(escape(v.RuleSource))
	if v.RuleIndex >= 0 {
		rule = fmt.Sprintf("rule %q (%s)", escape(audit.Text(secretname.Written(string(v.Rule)))), source)
	}
	if v.RuleIndex < 0 && v.RuleSource != "" {
		rule = source
	}
	text := fmt.Sprintf("%s %s: %s by %s, %s[%d]", v.Operation, present.InMount(v.Mount, escape(audit.Text(v.Path))), v.Permission, rule, escape(v.Program), v.PID)
	if v.Count > 1 {
		text += fmt.Sprintf(", %d times", v.Count)
	}
	return text
}

func describeOmitted(v audit.EventsOmitted) string {
	what := "the log"
	if v.Reason == audit.OmittedOwnerBudget {
		what = "the owner's logs together"
	}
	parts := []string{fmt.Sprintf("%d records only counted, because %s reached the budget", v.Records(), what)}
	for _, c := range v.Events {
		text := fmt.Sprintf("%d %s", c.Records, vpath.Escape(string(c.Event)))
		if c.Rule != "" {
			text += fmt.Sprintf(" by %q", escape(audit.Text(secretname.Written(string(c.Rule)))))
		}
		if c.Count > c.Records {
			text += fmt.Sprintf(" (%d times)", c.Count)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func describeChanges(v audit.FileChanged) string {
	parts := []string{v.Exec}
	for _, group := range []struct {
		sign  string
		paths []audit.Text
	}{{"A", v.Created}, {"M", v.Modified}, {"D", v.Deleted}} {
		if len(group.paths) > 0 {
			parts = append(parts, group.sign+" "+joinTexts(inMount(v.Mount, group.paths)))
		}
	}
	for i, r := range v.Renamed {
		if i == maxListed {
			break
		}
		parts = append(parts, fmt.Sprintf("R %s to %s", present.InMount(v.Mount, escape(r.From)), present.InMount(v.Mount, escape(r.To))))
	}
	return strings.Join(parts, "; ")
}
