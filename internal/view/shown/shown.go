// Package shown says what a policy shows in place of the content of files: it makes the
// transforms of a layer stack from the rules redact and substitute. It decides nothing else.
package shown

import (
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/redact"
)

// Transforms returns the function for layer.Stack.SetTransforms, nil if p shows every content
// as it is.
func Transforms(p *policy.Policy) func(vpath.Path) *layer.Transform {
	if !p.HasTransforms() {
		return nil
	}
	return func(at vpath.Path) *layer.Transform {
		t := p.Decide(at).Transform
		if t.IsZero() {
			return nil
		}
		return transform(p, at, t)
	}
}

// transform returns t for the file at a path.
func transform(p *policy.Policy, at vpath.Path, t policy.Transform) *layer.Transform {
	made := &layer.Transform{Key: Key(t)}
	if t.Redact != policy.NoFormat {
		made.Make, made.MaxBytes = masks[t.Redact], redact.MaxBytes
		return made
	}
	// The substitute must be readable as it is. So there are no chains and no loops.
	if target := t.Target(at); p.ShowsContent(target) {
		made.Target = target
	}
	return made
}

// Key is the layer.Transform.Key of t, "" if t shows the content as it is.
func Key(t policy.Transform) string { return t.String() }

var masks = map[policy.Format]func([]byte) ([]byte, error){
	policy.Env:  redact.Env,
	policy.JSON: redact.JSON,
	policy.YAML: redact.YAML,
	policy.TOML: redact.TOML,
}
