// Package learn turns recorded uses of a view into the policy that would have permitted them.
//
// The policy permits every use (Learn checks each by policy.Decide), and nothing that the policy
// did not permit under which the uses were recorded (checked by package prove). Names are
// generalised only where three or more siblings agree, and never over what is known as a secret:
// the file begins with the preset nothing, which hides the names of secrets, and hides files in
// which a secret was found. What cannot be written in a policy file is a note.
package learn

import (
	"cmp"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// MaxRules is how many rules Learn aims at: with more it generalises further.
const MaxRules = 25

// Preset is the preset of a learned policy.
const Preset = "nothing"

// secretPriority is that of a rule for a name that the preset hides: as a rule of type file it
// then wins.
const secretPriority = preset.SecretPriority

// Entry is a name in a directory of the source.
type Entry struct {
	Name string
	Dir  bool
}

// Secret is a file of the source that probably holds a secret.
type Secret struct {
	Path   vpath.Path
	Dir    bool
	Reason string // for people
}

// Host is a host that was reached, as network.allow has it.
type Host struct {
	Text        string
	Connections int
}

// Refusal is something that was refused, in words: "read /.env (12 times)".
type Refusal string

// Input is what a policy is learned from. Uses is required.
type Input struct {
	Uses    []uses.Use
	Omitted int64 // uses that were not recorded
	// Base and Options are the policy under which the uses were recorded. With nil Base nothing
	// bounds what is learned.
	Base    []policy.Rule
	Options policy.Options
	// Command is the command, for people.
	Command string
	// List returns the entries of a directory of the source before the uses, nil if there are
	// none. It tells whether siblings agree. It may be nil.
	List func(vpath.Path) []Entry
	// Secrets are what is known of secrets in the source.
	Secrets []Secret
	// Network says that hosts were recorded.
	Network bool
	Hosts   []Host
	Refused []Refusal
	Scratch []vpath.Path // scratch directories, in which uses are not seen
	// Into is the policy file into which Learned is merged, nil for a new one. What it permits is
	// not learned again.
	Into *policyfile.Document
}

// Rule is a learned rule and what it was learned from.
type Rule struct {
	policy.Rule
	Evidence string // for people, on one line
}

// Learned is a policy: rules after those of Preset, or of Input.Into.
type Learned struct {
	Under   []policy.Rule // the rules before
	Command string
	Rules   []Rule
	Network bool
	Hosts   []Host
	Scratch []vpath.Path
	Expect  []Secret // that must stay none
	Notes   []string // for people, a line each
	Refused []Refusal
	Paths   int // that were used
}

// All returns all rules of the policy.
func (l *Learned) All() []policy.Rule {
	rules := slices.Clone(l.Under)
	for _, r := range l.Rules {
		rules = append(rules, r.Rule)
	}
	return rules
}

// Learn returns the narrowest readable policy that permits the uses. Errors: Invalid for Base.
func Learn(in Input) (*Learned, error) {
	l := &learner{in: in, out: &Learned{
		Command: in.Command, Network: in.Network, Hosts: slices.Clone(in.Hosts), Refused: in.Refused, Scratch: in.Scratch,
	}}
	if err := l.begin(); err != nil {
		return nil, err
	}
	l.addUses()
	items := l.cover()
	if err := l.finish(items); err != nil {
		return nil, err
	}
	slices.SortFunc(l.out.Hosts, func(a, b Host) int { return cmp.Compare(a.Text, b.Text) })
	l.note()
	return l.out, nil
}

// learner is the state of one Learn.
type learner struct {
	in      Input
	out     *Learned
	base    *policy.Policy
	nothing *policy.Policy // the preset alone
	granted *policy.Policy // of Input.Into, or nil
	bare    bool           // Input.Into does not hide the names of secrets
	secrets map[vpath.Path]*Secret
	hiding  map[policy.Rule]bool // the rules of the preset, without source
	bounds  *policy.Policy       // the base as differences compared it
	offset  int                  // of the first learned rule in what differences compared
	root    *node
	asked   []*node                // all paths that were used
	exists  map[vpath.Path][]Entry // what List returned
	listed  int
	own     []vpath.Path
}

func (l *learner) begin() (err error) {
	base := l.in.Base
	if base == nil {
		base = []policy.Rule{{Pattern: "**", Permission: policy.Write}}
	}
	if l.base, err = policy.Compile(base, l.in.Options); err != nil {
		return err
	}
	rules, err := preset.Rules(Preset)
	if err != nil {
		return err
	}
	if l.nothing, err = policy.Compile(rules, policy.Options{}); err != nil {
		return err
	}
	l.out.Under, l.hiding = rules, map[policy.Rule]bool{}
	for _, r := range rules {
		l.hiding[withoutSource(r)] = true
	}
	if l.in.Into != nil {
		if err := l.beginMerge(rules); err != nil {
			return err
		}
	}
	l.root = &node{path: vpath.Root, dir: true}
	l.secrets, l.exists = map[vpath.Path]*Secret{}, map[vpath.Path][]Entry{}
	for i := range l.in.Secrets {
		l.secrets[l.in.Secrets[i].Path] = &l.in.Secrets[i]
	}
	return nil
}

// beginMerge takes the rules of the file to be merged into.
func (l *learner) beginMerge(hiding []policy.Rule) (err error) {
	if l.out.Under, err = l.in.Into.AllRules(); err != nil {
		return err
	}
	for _, r := range hiding {
		l.bare = l.bare || !slices.ContainsFunc(l.out.Under, func(u policy.Rule) bool {
			return u.Pattern == r.Pattern && u.Permission == policy.None && u.Priority >= r.Priority
		})
	}
	l.granted, err = policy.Compile(l.out.Under, l.in.Options)
	return err
}

// isSecret reports whether the path has the name of a secret, or is known to hold one.
func (l *learner) isSecret(p vpath.Path) bool {
	return l.nothing.Decide(p).Rule != policy.NoRule || l.secrets[p] != nil
}
