package learn

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
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
			fmt.Fprintf(&b, "  - %s\n", quote(p.Rel()))
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
		fmt.Fprintf(&b, "%s# %s\n%s- {%s}\n", indent, r.Evidence, indent, ruleText(r.Rule))
	}
	return b.String()
}

func ruleText(r policy.Rule) string {
	text := "pattern: " + quote(r.Pattern)
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
		text += ", substitute: " + quote(r.Transform.Substitute)
	}
	return text
}

func (l *Learned) hostsText(indent string) string {
	var b strings.Builder
	for _, h := range l.Hosts {
		fmt.Fprintf(&b, "%s- %s # %d connections\n", indent, quote(h.Text), h.Connections)
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
		fmt.Fprintf(&b, "%s- {path: %s, permission: none} # %s\n", indent, quote(path), comment(s.Reason))
	}
	return b.String()
}

// quote writes text in double quotes, with escapes for all that is not visible.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unicode.IsPrint(r) && r != utf8.RuneError:
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
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
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil || len(root.Content) == 0 {
		return nil, errdefs.New(errdefs.Invalid, "learned policy: the file cannot be read again")
	}
	e := editor{text: text}
	if len(l.Rules) > 0 {
		e.add(root.Content[0], []string{"rules"}, l.rulesText)
	}
	if known := into.Network; l.Network {
		fresh := *l
		fresh.Hosts = slices.DeleteFunc(slices.Clone(l.Hosts), func(h Host) bool { return known != nil && slices.Contains(known.Texts(), h.Text) })
		if len(fresh.Hosts) > 0 {
			e.add(root.Content[0], []string{"network", "allow"}, fresh.hostsText)
		}
	}
	fresh := *l
	fresh.Expect = slices.DeleteFunc(slices.Clone(l.Expect), func(s Secret) bool {
		return slices.ContainsFunc(into.Expect, func(x policyfile.Expectation) bool { return x.Path == s.Path })
	})
	if fresh.expectText("") != "" {
		e.add(root.Content[0], []string{"expect"}, fresh.expectText)
	}
	out, err := e.result()
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

// editor adds items to the lists of a YAML text, behind the line of their key.
type editor struct {
	text []byte
	adds []added
	err  error
}

type added struct {
	line int // behind which it goes; 0: at the end
	text string
}

// add adds the items to the list at the keys.
func (e *editor) add(n *yaml.Node, keys []string, items func(indent string) string) {
	prefix := ""
	for depth, key := range keys {
		var at, value *yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				at, value = n.Content[i], n.Content[i+1]
			}
		}
		if at == nil {
			e.adds = append(e.adds, added{e.lineOf(n, depth), missing(keys[depth:], prefix, items)})
			return
		}
		if n = value; depth < len(keys)-1 && n.Style&yaml.FlowStyle != 0 || depth == len(keys)-1 && n.Style&yaml.FlowStyle != 0 {
			e.err = errdefs.New(errdefs.Invalid, "learned policy: line %d: %s is written in brackets; write one item a line, so that others can be added", at.Line, strings.Join(keys[:depth+1], "."))
			return
		}
		prefix = strings.Repeat(" ", at.Column-1) + "  "
		if depth == len(keys)-1 {
			indent := strings.Repeat(" ", max(0, n.Column-1))
			e.adds = append(e.adds, added{at.Line, items(indent)})
		}
	}
}

// lineOf is the line behind which a missing key of n goes: the end of the text for the outermost
// mapping.
func (e *editor) lineOf(n *yaml.Node, depth int) int {
	if depth == 0 {
		return 0
	}
	return n.Line - 1
}

func missing(keys []string, indent string, items func(indent string) string) string {
	text := ""
	for _, key := range keys {
		text += indent + key + ":\n"
		indent += "  "
	}
	return text + items(indent)
}

// result returns the text with what was added.
func (e *editor) result() ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	lines := bytes.SplitAfter(e.text, []byte("\n"))
	var out []byte
	for i, line := range lines {
		out = append(out, line...)
		for _, a := range e.adds {
			if a.line == i+1 {
				out = append(out, a.text...)
			}
		}
	}
	for _, a := range e.adds {
		if a.line == 0 {
			if len(out) > 0 && out[len(out)-1] != '\n' {
				out = append(out, '\n')
			}
			out = append(out, a.text...)
		}
	}
	return out, nil
}
