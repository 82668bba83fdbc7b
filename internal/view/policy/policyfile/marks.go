package policyfile

import (
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// RiskFlag is a path of a project that acts on the host once it is changed: a
// program of its own runs or obeys it.
type RiskFlag struct {
	Pattern string `json:"pattern"` // as of a rule, without regard to case
	Reason  string `json:"reason"`  // for people; it prints, on one line
}

// The bounds of a project's marks.
const (
	MaxMarks       = 1024
	maxReasonBytes = 200
)

// CheckMarks refuses marks that cannot be. Errors: Invalid.
func CheckMarks(marks []RiskFlag) error {
	if len(marks) > MaxMarks {
		return errdefs.New(errdefs.Invalid, "%d marks: at most %d are allowed", len(marks), MaxMarks)
	}
	for _, m := range marks {
		if err := m.check(); err != nil {
			return errdefs.New(errdefs.Invalid, "mark %s: %w", vpath.Quote(m.Pattern), err)
		}
	}
	return nil
}

func (m RiskFlag) check() error {
	if err := (policy.Rule{Pattern: m.Pattern, Permission: policy.Read}).Check(); err != nil {
		return errdefs.New(errdefs.Invalid, "pattern: %w", err)
	}
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	switch {
	case strings.TrimSpace(m.Reason) == "":
		return errdefs.New(errdefs.Invalid, "reason is missing: say what runs or obeys the file")
	case len(m.Reason) > maxReasonBytes:
		return errdefs.New(errdefs.Invalid, "reason: longer than %d bytes", maxReasonBytes)
	case strings.ContainsFunc(m.Reason, unprintable):
		return errdefs.New(errdefs.Invalid, "reason: has characters that cannot be printed")
	}
	return nil
}

func (l *loader) readMarks(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return l.At(n.Line, "marks is a list, not %s", yamlfile.Shape(n))
	}
	for _, item := range n.Content {
		var m RiskFlag
		has, err := l.Mapping(item, "mark", []yamlfile.Field{
			l.TextField("pattern", &m.Pattern), l.TextField("reason", &m.Reason),
		})
		if err != nil {
			return err
		}
		if !has["pattern"] {
			return l.At(item.Line, "pattern is missing in the mark")
		}
		if err := m.check(); err != nil {
			return l.At(item.Line, "mark %s: %w", vpath.Quote(m.Pattern), err)
		}
		l.file.Marks = append(l.file.Marks, m)
	}
	if len(l.file.Marks) > MaxMarks {
		return l.At(n.Line, "%d marks: at most %d are allowed", len(l.file.Marks), MaxMarks)
	}
	return nil
}
