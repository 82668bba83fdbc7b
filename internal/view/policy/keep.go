package policy

import (
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// The values of apply in a rule: what happens to a change where the rule decides.
const (
	applyReview = "review" // it waits for a review
	applyKeep   = "keep"   // it is applied when the command ends
)

// Applies returns the values that apply may have in a rule.
func Applies() []string { return []string{applyKeep, applyReview} }

// ParseApply reads apply of a rule. Errors: Invalid, with the nearest valid word.
func ParseApply(s string) (keep bool, err error) {
	i, err := parseName(Applies(), s, "apply")
	return i == 0 && err == nil, err
}

// KeyList is a list of keys of a JSON file, one a line. It is comparable, as a Rule must be.
type KeyList string

// NewKeyList returns the list of keys. Errors: Invalid, see jsonkeys.Check.
func NewKeyList(keys []string) (KeyList, error) {
	if err := jsonkeys.Check(keys); err != nil {
		return "", err
	}
	return KeyList(strings.Join(keys, "\n")), nil
}

// List returns the keys.
func (l KeyList) List() []string {
	if l == "" {
		return nil
	}
	return strings.Split(string(l), "\n")
}

// Keeps reports whether some rules let changes be applied without a review.
func Keeps(rules []Rule) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.Keep })
}

// KeptBy returns the rule that lets a change at path be applied without a review, and whether
// there is one: the rule that decides, which no widening flag has replaced.
func (p *Policy) KeptBy(path vpath.Path) (Rule, bool) {
	d := p.Decide(path)
	if d.Rule == NoRule || d.Permission != Write {
		return Rule{}, false
	}
	r := p.rules[d.Rule]
	return r, r.Keep
}
