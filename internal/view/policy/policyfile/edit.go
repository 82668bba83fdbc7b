package policyfile

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Editor adds items to the lists of a policy file, each behind the line of its key. It changes no
// other byte.
type Editor struct {
	text []byte
	root *yaml.Node
	adds []added
	err  error
}

type added struct {
	line int // behind which it goes; 0: at the end
	text string
}

// Edit returns an editor of the text of a policy file. Errors: Invalid.
func Edit(text []byte) (*Editor, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil || len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errdefs.New(errdefs.Invalid, "the policy file cannot be edited: it is no mapping")
	}
	return &Editor{text: text, root: document.Content[0]}, nil
}

// Add adds items to the list at the keys: lines in YAML, which items returns with an indent. A
// key that is missing is added.
func (e *Editor) Add(items func(indent string) string, keys ...string) {
	n, prefix := e.root, ""
	for depth, key := range keys {
		at, value := find(n, key)
		if at == nil {
			line := 0 // at the end of the outermost mapping
			if depth > 0 {
				line = n.Line - 1
			}
			e.adds = append(e.adds, added{line, missing(keys[depth:], prefix, items)})
			return
		}
		if value.Style&yaml.FlowStyle != 0 || value.Kind != yaml.MappingNode && value.Kind != yaml.SequenceNode || value.Line == at.Line {
			e.err = errdefs.New(errdefs.Invalid, "line %d: nothing can be added to %s: write its items on lines of their own, without brackets",
				at.Line, strings.Join(keys[:depth+1], "."))
			return
		}
		n, prefix = value, strings.Repeat(" ", value.Column-1)
		if depth == len(keys)-1 {
			e.adds = append(e.adds, added{at.Line, items(prefix)})
		}
	}
}

// find returns the key of a mapping and its value, nil if there is none.
func find(n *yaml.Node, key string) (at, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

func missing(keys []string, indent string, items func(indent string) string) string {
	var b strings.Builder
	for depth, key := range keys {
		b.WriteString(indent + strings.Repeat("  ", depth) + key + ":\n")
	}
	return b.String() + items(indent+strings.Repeat("  ", len(keys)))
}

// Result returns the text with what was added. Errors: Invalid for a list to which nothing can be
// added as text.
func (e *Editor) Result() ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	var out []byte
	for i, line := range bytes.SplitAfter(e.text, []byte("\n")) {
		out = append(out, line...)
		for _, a := range e.adds {
			if a.line == i+1 {
				out = append(endLine(out), a.text...)
			}
		}
	}
	for _, a := range e.adds {
		if a.line == 0 {
			out = append(endLine(out), a.text...)
		}
	}
	return out, nil
}

// endLine ends the last line of the text if it has no end.
func endLine(text []byte) []byte {
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return text
}
