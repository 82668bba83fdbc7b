package policy

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Earlier has policies that were in force one after another. Most differ from the one before by a
// grant, so as JSON each is either a list of rules, or how it differs from the one before.
type Earlier [][]Rule

// step makes a policy of the one before.
type step struct {
	Without []int  `json:"without,omitempty"` // positions in the one before, in ascending order
	Then    []Rule `json:"then,omitempty"`    // follow its other rules
}

// MarshalJSON writes the policies in room that grows with what changed, not with their size.
func (e Earlier) MarshalJSON() ([]byte, error) {
	list := make([]any, len(e))
	var before []Rule
	for i, rules := range e {
		list[i] = rules
		if s := stepTo(rules, before); len(s.Then) < len(rules) && len(s.Without) <= len(rules) {
			list[i] = s
		}
		before = rules
	}
	return json.Marshal(list)
}

// stepTo returns how rules differ from those before.
func stepTo(rules, before []Rule) step {
	var s step
	kept := 0
	for i, r := range before {
		if kept < len(rules) && r == rules[kept] {
			kept++
			continue
		}
		s.Without = append(s.Without, i)
	}
	s.Then = rules[kept:]
	return s
}

// UnmarshalJSON reads what MarshalJSON has written, and lists of rules. Errors: Invalid for a
// difference from rules that there are not.
func (e *Earlier) UnmarshalJSON(text []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*e = nil
	var before []Rule
	for i, item := range list {
		var rules []Rule
		if bytes.HasPrefix(item, []byte("{")) {
			var s step
			if err := json.Unmarshal(item, &s); err != nil {
				return err
			}
			var err error
			if rules, err = s.from(before); err != nil {
				return errdefs.New(errdefs.Invalid, "earlier policy %d: %w", i, err)
			}
		} else if err := json.Unmarshal(item, &rules); err != nil {
			return err
		}
		*e = append(*e, rules)
		before = rules
	}
	return nil
}

// from returns the rules to which the step leads.
func (s step) from(before []Rule) ([]Rule, error) {
	var rules []Rule
	next := 0
	for _, at := range s.Without {
		if at < next || at >= len(before) {
			return nil, errdefs.New(errdefs.Invalid, "no rule %d to leave out of %d", at, len(before))
		}
		rules = append(rules, before[next:at]...)
		next = at + 1
	}
	return slices.Concat(rules, before[next:], s.Then), nil
}
