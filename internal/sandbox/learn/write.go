package learn

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// Write writes the policy as a policy file with comments. Errors: Invalid for what a file cannot
// hold; those of w.
func (l *Learned) Write(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Learned by `agentfense run --learn`. It permits what this command used:\n")
	fmt.Fprintf(&b, "#   %s\n", comment(l.Command))
	l.writeNotes(&b)
	fmt.Fprintf(&b, "version: %d\npreset: %s # permits nothing, and hides the names of secrets\n", policyfile.Version, Preset)
	if len(l.Rules) == 0 {
		b.WriteString("rules: []\n")
	} else {
		b.WriteString("rules:\n" + l.rulesText("  "))
	}
	if l.Network && len(l.Hosts) == 0 {
		b.WriteString("network:\n  allow: []\n")
	} else if l.Network {
		b.WriteString("network:\n  allow:\n" + l.hostsText("    "))
	}
	if len(l.Scratch) > 0 {
		b.WriteString("scratch:\n")
		for _, p := range l.Scratch {
			fmt.Fprintf(&b, "  - %s\n", yamlfile.Quote(p.Rel()))
		}
	}
	if text := l.expectText("  "); text != "" {
		b.WriteString("expect: # `agentfense policy test` checks that these stay hidden\n" + text)
	}
	l.writeRefused(&b)
	text := []byte(b.String())
	if err := l.check(text, nil); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}

func (l *Learned) writeNotes(b *strings.Builder) {
	for _, n := range l.Notes {
		fmt.Fprintf(b, "# Note: %s\n", comment(n))
	}
}

func (l *Learned) writeRefused(b *strings.Builder) {
	if len(l.Refused) == 0 {
		return
	}
	b.WriteString("# Refused during the run, and not permitted here:\n")
	for _, r := range l.Refused {
		fmt.Fprintf(b, "#   %s\n", comment(string(r)))
	}
}

// comment returns text that stays in one line of comments.
func comment(text string) string { return vpath.Escape(text) }

func (l *Learned) rulesText(indent string) string {
	var b strings.Builder
	for _, r := range l.Rules {
		fmt.Fprintf(&b, "%s# %s\n%s- {%s}\n", indent, r.Evidence, indent, RuleText(r.Rule))
	}
	return b.String()
}

// RuleText is a rule as a policy file has it, without the braces around it.
func RuleText(r policy.Rule) string {
	text := "pattern: " + yamlfile.Quote(r.Pattern)
	if r.Transform.IsZero() {
		text += ", permission: " + r.Permission.String()
	}
	if r.Type != policy.Auto {
		text += ", type: " + r.Type.String()
	}
	if r.Priority != 0 {
		text += fmt.Sprintf(", priority: %d", r.Priority)
	}
	if r.Permission == policy.None && !r.Own {
		text += ", strict: true"
	}
	if redact := r.Transform.Redact.String(); redact != "" {
		text += ", redact: " + redact
	}
	if r.Transform.Substitute != "" {
		text += ", substitute: " + yamlfile.Quote(r.Transform.Substitute)
	}
	return text
}

func (l *Learned) hostsText(indent string) string {
	var b strings.Builder
	for _, h := range l.Hosts {
		unit := "connections"
		if h.Connections == 1 {
			unit = "connection"
		}
		fmt.Fprintf(&b, "%s- %s # %d %s\n", indent, yamlfile.Quote(h.Text), h.Connections, unit)
	}
	return b.String()
}

func (l *Learned) expectText(indent string) string {
	var b strings.Builder
	for _, s := range l.Expect {
		path := string(s.Path)
		if !utf8.ValidString(path) {
			continue
		}
		if s.Dir {
			path += "/"
		}
		fmt.Fprintf(&b, "%s- {path: %s, permission: none} # %s\n", indent, yamlfile.Quote(path), comment(s.Reason))
	}
	return b.String()
}

// check reads a file and compares it with what it is to hold: the rules before, and the learned
// ones. Errors: Invalid.
func (l *Learned) check(text []byte, before []policy.Rule) error {
	doc, err := policyfile.Load(bytes.NewReader(text), "learned policy")
	if err != nil {
		return err
	}
	want := slices.Clone(before)
	for _, r := range l.Rules {
		want = append(want, r.Rule)
	}
	for _, r := range want {
		r.Source = ""
		if !slices.ContainsFunc(doc.Rules, func(b policy.Rule) bool {
			b.Source = ""
			return b == r
		}) {
			return errdefs.New(errdefs.Invalid, "learned policy: a file cannot hold the pattern %s", vpath.Quote(r.Pattern))
		}
	}
	return nil
}

// MergeInto adds the policy to the text of a policy file, of which Input.Into was read. It
// changes no other byte. Errors: Invalid.
func (l *Learned) MergeInto(text []byte, into *policyfile.Document) ([]byte, error) {
	e, err := policyfile.Edit(text)
	if err != nil {
		return nil, err
	}
	if len(l.Rules) > 0 {
		e.Add(l.rulesText, "rules")
	}
	if known := into.Network; l.Network {
		fresh := *l
		fresh.Hosts = slices.DeleteFunc(slices.Clone(l.Hosts), func(h Host) bool { return known != nil && slices.Contains(known.Texts(), h.Text) })
		if len(fresh.Hosts) > 0 {
			e.Add(fresh.hostsText, "network", "allow")
		}
	}
	fresh := *l
	fresh.Expect = slices.DeleteFunc(slices.Clone(l.Expect), func(s Secret) bool {
		return slices.ContainsFunc(into.Expect, func(x policyfile.Expectation) bool { return x.Path == s.Path })
	})
	if fresh.expectText("") != "" {
		e.Add(fresh.expectText, "expect")
	}
	out, err := e.Result()
	if err != nil {
		return nil, err
	}
	if bytes.Equal(out, text) {
		return text, nil
	}
	var notes strings.Builder
	fmt.Fprintf(&notes, "# Added by `agentfense run --learn`, of: %s\n", comment(l.Command))
	l.writeNotes(&notes)
	l.writeRefused(&notes)
	if out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	out = append(out, notes.String()...)
	return out, l.check(out, into.Rules)
}
