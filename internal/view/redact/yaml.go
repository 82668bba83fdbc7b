package redact

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

var errYAML = errors.New("the file is not YAML whose keys are texts, numbers or words")

// YAML masks a YAML file, which may have several documents. Anchors and aliases remain, under
// other names, and aliases are not expanded. Tags that are not YAML's own are dropped.
func YAML(content []byte) (masked []byte, err error) {
	if content, err = begin(content); err != nil {
		return nil, err
	}
	defer func() {
		if recover() != nil { // a fault of the parser must not end the process
			masked, err = nil, errYAML
		}
	}()
	var out bounded
	in := yaml.NewDecoder(bytes.NewReader(content))
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	for {
		var document yaml.Node
		switch err := in.Decode(&document); {
		case errors.Is(err, io.EOF):
			if err := encoder.Close(); err != nil {
				return nil, err
			}
			return out.Bytes(), nil
		case err != nil:
			return nil, errYAML
		}
		m := yamlMasker{anchors: map[*yaml.Node]*yaml.Node{}}
		n, err := m.mask(&document, 0)
		if err != nil {
			return nil, err
		}
		if err := encoder.Encode(n); err != nil {
			return nil, err
		}
	}
}

// yamlMasker masks a document.
type yamlMasker struct {
	anchors map[*yaml.Node]*yaml.Node // what was made of the nodes that have one
}

// mask returns the masked form of n, which is nested depth times.
func (m *yamlMasker) mask(n *yaml.Node, depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	masked := &yaml.Node{Kind: n.Kind}
	if n.Anchor != "" {
		m.name(n, masked)
	}
	var err error
	switch n.Kind {
	case yaml.DocumentNode, yaml.SequenceNode:
		err = m.list(n, masked, depth+1)
	case yaml.MappingNode:
		err = m.mapping(n, masked, depth+1)
	case yaml.ScalarNode:
		masked.Tag, masked.Value, masked.Style = yamlMask(n)
	case yaml.AliasNode:
		return m.alias(n)
	default:
		err = errYAML
	}
	return masked, err
}

// name gives masked, which n becomes, an anchor of ours.
func (m *yamlMasker) name(n, masked *yaml.Node) {
	m.anchors[n] = masked
	masked.Anchor = fmt.Sprintf("a%d", len(m.anchors))
}

// alias returns an alias of what was made of n's target.
func (m *yamlMasker) alias(n *yaml.Node) (*yaml.Node, error) {
	target := m.anchors[n.Alias]
	if target == nil {
		return nil, errYAML
	}
	return &yaml.Node{Kind: yaml.AliasNode, Alias: target, Value: target.Anchor}, nil
}

// yamlMask returns the mask of a value that has no parts.
func yamlMask(n *yaml.Node) (tag, value string, style yaml.Style) {
	switch n.ShortTag() {
	case "!!int":
		return "!!int", maskNumber, 0
	case "!!float":
		return "!!float", "0.0", 0
	case "!!bool":
		return "!!bool", maskBool, 0
	case "!!null":
		return "!!null", "null", 0
	case "!!timestamp":
		return "!!timestamp", "1970-01-01", 0
	}
	return "!!str", maskText, yaml.DoubleQuotedStyle
}

// list masks the parts of n. Of values without parts that follow each other only the first is
// shown, unless an anchor names it.
func (m *yamlMasker) list(n, masked *yaml.Node, depth int) error {
	repeated := false
	for _, part := range n.Content {
		plain := part.Kind == yaml.ScalarNode || part.Kind == yaml.AliasNode && part.Alias.Kind == yaml.ScalarNode
		if plain && repeated && part.Anchor == "" {
			continue
		}
		repeated = plain
		one, err := m.mask(part, depth)
		if err != nil {
			return err
		}
		masked.Content = append(masked.Content, one)
	}
	return nil
}

func (m *yamlMasker) mapping(n, masked *yaml.Node, depth int) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, err := m.key(n.Content[i])
		if err != nil {
			return err
		}
		value, err := m.mask(n.Content[i+1], depth)
		if err != nil {
			return err
		}
		masked.Content = append(masked.Content, key, value)
	}
	return nil
}

// key returns a key as it is, without its comments and style.
func (m *yamlMasker) key(n *yaml.Node) (*yaml.Node, error) {
	if n.Kind != yaml.ScalarNode || n.Anchor != "" {
		return nil, errYAML
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: n.ShortTag(), Value: n.Value}
	switch key.Tag {
	case "!!merge", "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
	case "!!null":
		key.Value = "null"
	default:
		return nil, errYAML
	}
	return key, nil
}
