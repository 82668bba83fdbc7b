package policyfile

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// MaxExpectations bounds those of a policy file.
const MaxExpectations = 1 << 16

// Expectation is what a policy file says that its policy decides at a path.
type Expectation struct {
	Path       vpath.Path
	Dir        bool // the path is a directory: written with a slash at its end
	Permission policy.Permission
	Source     string // for people: "policy.yaml:12"
}

// Outcome is how a policy decides where something was expected.
type Outcome struct {
	Expectation
	Decision policy.Decision
	Got      policy.Permission // what the path shows; of a directory, Decision.ForDir
}

// Holds reports whether the policy decides as expected.
func (o Outcome) Holds() bool { return o.Got == o.Permission }

// Test returns how p decides at each path.
func Test(p *policy.Policy, expectations []Expectation) []Outcome {
	out := make([]Outcome, len(expectations))
	for i, x := range expectations {
		d := p.Decide(x.Path)
		out[i] = Outcome{Expectation: x, Decision: d, Got: d.Permission}
		if x.Dir {
			out[i].Got = d.ForDir()
		}
	}
	return out
}

func (l *loader) readExpectations(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return l.At(n.Line, "expect is a list, not %s", yamlfile.Shape(n))
	}
	if len(n.Content) > MaxExpectations {
		return l.At(n.Line, "%d expectations: at most %d are allowed", len(n.Content), MaxExpectations)
	}
	for _, item := range n.Content {
		x, err := l.readExpectation(item)
		if err != nil {
			return err
		}
		l.file.Expect = append(l.file.Expect, x)
	}
	return nil
}

func (l *loader) readExpectation(n *yaml.Node) (Expectation, error) {
	x := Expectation{Source: fmt.Sprintf("%s:%d", l.File, n.Line)}
	has, err := l.Mapping(n, "expectation", []yamlfile.Field{
		{Key: "path", Read: func(v *yaml.Node) error {
			text, err := l.Text(v, "path")
			if err != nil {
				return err
			}
			x.Dir = strings.HasSuffix(text, "/")
			if x.Path, err = vpath.Parse(text); err != nil {
				return l.At(v.Line, "%w", err)
			}
			return nil
		}},
		{Key: "permission", Read: func(v *yaml.Node) (err error) {
			x.Permission, err = readWord(l, v, "permission", policy.ParsePermission)
			return err
		}},
	})
	if err != nil {
		return x, err
	}
	for _, key := range []string{"path", "permission"} {
		if !has[key] {
			return x, l.At(n.Line, "%s is missing in the expectation", key)
		}
	}
	return x, nil
}
