package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// pageName is the name of a command's man page: agentfense-policy-tree.
func pageName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// manPage returns the man page of cmd, in the macros of man(7).
func manPage(cmd *cobra.Command, version string) string {
	var b strings.Builder
	name := pageName(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s \"User Commands\"\n", quoted(strings.ToUpper(name)), quoted("agentfense "+version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name), escape(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", line(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	paragraphs(&b, text)
	writeVerbs(&b, cmd)
	writeFlags(&b, "OPTIONS", cmd.NonInheritedFlags())
	writeFlags(&b, "GLOBAL OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		verbatim(&b, cmd.Example)
	}
	writeSeeAlso(&b, cmd)
	return b.String()
}

// paragraphs writes text, in which an empty line ends a paragraph. A paragraph with an
// indented line is kept as it is.
func paragraphs(b *strings.Builder, text string) {
	for i, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(p, " ") || strings.Contains(p, "\n ") || strings.Contains(p, "\t") {
			verbatim(b, p)
			continue
		}
		for l := range strings.SplitSeq(p, "\n") {
			b.WriteString(line(l) + "\n")
		}
	}
}

func verbatim(b *strings.Builder, text string) {
	b.WriteString(".nf\n")
	for l := range strings.SplitSeq(strings.ReplaceAll(text, "\t", "    "), "\n") {
		if l = line(strings.TrimRight(l, " ")); l == "" {
			l = ".sp"
		}
		b.WriteString(l + "\n")
	}
	b.WriteString(".fi\n")
}

func writeVerbs(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	b.WriteString(".SH COMMANDS\n")
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			fmt.Fprintf(b, ".TP\n.BR %s (1)\n%s\n", quoted(pageName(sub)), line(sub.Short))
		}
	}
}

func writeFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", quoted(title))
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		spelled := "--" + f.Name
		if f.Shorthand != "" {
			spelled = "-" + f.Shorthand + ", " + spelled
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s", quoted(strings.TrimSpace(spelled+" "+value)), line(usage))
		if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" && d != "0s" {
			fmt.Fprintf(b, " (default %s)", escape(d))
		}
		b.WriteString("\n")
	})
}

func writeSeeAlso(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasParent() {
		b.WriteString(".SH SEE ALSO\n.UR https://github.com/agentfense/agentfense\nThe documentation\n.UE\n")
		return
	}
	fmt.Fprintf(b, ".SH SEE ALSO\n.BR %s (1)\n", quoted(pageName(cmd.Parent())))
}

// line is escape for a whole line, of which the first character could begin a request.
func line(s string) string {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		return `\&` + escape(s)
	}
	return escape(s)
}

// escape returns s such that roff prints it as it is.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", "...").Replace(s)
}

// quoted is s as one argument of a macro.
func quoted(s string) string { return `"` + strings.ReplaceAll(escape(s), `"`, `\(dq`) + `"` }
