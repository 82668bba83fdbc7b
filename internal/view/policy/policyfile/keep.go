package policyfile

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// The values of apply in a rule: what happens to a change where the rule decides.
const (
	applyKeep   = "keep"   // it is applied when the command ends
	applyReview = "review" // it waits for a review
)

var applyWords = []string{applyKeep, applyReview}

// parseApply reads apply of a rule. Errors: Invalid, with the nearest valid word.
func parseApply(s string) (keep bool, err error) {
	if !slices.Contains(applyWords, s) {
		return false, nearest.Unknown("apply", s, applyWords)
	}
	return s == applyKeep, nil
}

// readKeys reads the keys of a rule with apply: keep.
func (l *loader) readKeys(n *yaml.Node) (jsonkeys.List, error) {
	if n.Kind != yaml.SequenceNode {
		return "", l.At(n.Line, "keys is a list of keys of a JSON file, not %s", yamlfile.Shape(n))
	}
	if len(n.Content) == 0 {
		return "", l.At(n.Line, "keys is empty: name keys of the file, or leave it out to keep all of the file")
	}
	var keys []string
	var list jsonkeys.List
	for _, item := range n.Content {
		text, err := l.Text(item, "a key")
		if err != nil {
			return "", err
		}
		keys = append(keys, text)
		if list, err = jsonkeys.NewList(keys); err != nil {
			return "", l.At(item.Line, "%w", err)
		}
	}
	return list, nil
}

// checkKeeping refuses apply and keys where they have no meaning. Each is nil if it is missing.
func (l *loader) checkKeeping(r *policy.Rule, apply, keys *yaml.Node) error {
	switch {
	case r.Keep && r.Permission != policy.Write:
		return l.At(apply.Line, "apply: keep goes with permission write, not %s", r.Permission)
	case keys != nil && !r.Keep:
		return l.At(keys.Line, "keys go with apply: keep")
	}
	return nil
}

// FirstKept returns the first rule of the file with apply: keep, and whether there is one.
func (d *Document) FirstKept() (policy.Rule, bool) {
	for _, r := range d.Rules {
		if r.Keep {
			return r, true
		}
	}
	return policy.Rule{}, false
}
