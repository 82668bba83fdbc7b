package policyfile

import (
	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
)

// MaxScratch is the most scratch directories of a policy file.
const MaxScratch = 32

// Scratch is a scratch directory as it is written. Load does not know which directories a
// sandbox may have: its callers check them, and refuse one with At.
type Scratch struct {
	Text string
	file yamlfile.File
	line int
}

// At returns an error at the place of s. Its kind is Invalid.
func (s Scratch) At(err error) error {
	return s.file.At(s.line, "scratch %s: %w", vpath.Quote(s.Text), err)
}

func (l *loader) readScratch(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return l.At(n.Line, "scratch is a list of directories, not %s", yamlfile.Shape(n))
	}
	if len(n.Content) > MaxScratch {
		return l.At(n.Line, "%d scratch directories: at most %d are allowed", len(n.Content), MaxScratch)
	}
	l.file.Scratch = []Scratch{}
	for _, item := range n.Content {
		text, err := l.Text(item, "a scratch directory")
		if err != nil {
			return err
		}
		l.file.Scratch = append(l.file.Scratch, Scratch{text, l.File, item.Line})
	}
	return nil
}

// ScratchTexts returns the scratch directories as they are written.
func (d *Document) ScratchTexts() []string {
	var texts []string
	for _, s := range d.Scratch {
		texts = append(texts, s.Text)
	}
	return texts
}
