// Package profile reads profiles: how a coding agent is run in a sandbox. A profile names the
// program, what of the home directory it sees and which of its changes there are kept, its
// variables, the hosts that it reaches, and the keys that it uses without knowing them.
//
// Profiles are built in, or are files of the user's configuration directory. A project has none:
// what a profile grants is for the user to say. The package knows no command line; its callers find
// the program, and make a sandbox of what a profile says.
package profile

import (
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/sandbox/login"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// Version is the version of the format of profiles.
const Version = 1

// Profile says how an agent is run.
type Profile struct {
	Name   string // of the verb
	Origin string // for people: "built in", or the file
	Text   string // the file, with its comments

	Title   string // of the agent
	Command string // the program, as the PATH has it
	Install string // for people: how to install it
	Tested  string // the version that was tried; "" for none
	Preset  string // of the workspace, unless its policy or a flag says otherwise; "" for the default
	Args    []string
	// Home are rules with patterns that begin at the home directory.
	Home []policy.Rule
	// HideSecretNames puts the rules that hide names of secrets above Home: a rule of Home shows
	// one only with at least their priority.
	HideSecretNames bool
	// Login are logins in files of the home directory, of which one is there if the agent has
	// logged in. Each file has one.
	Login   []login.Spec
	Set     []Variable // given to the agent, unless the caller has set them
	Pass    []string   // names of the caller's variables that are passed on
	Hosts   []string   // in the form of --allow-net
	Secrets []Secret
	Hint    Hint
	// IgnoredScratch makes directories of packages that git ignores scratch directories.
	IgnoredScratch bool
}

// Variable is a variable with its value.
type Variable struct{ Name, Value string }

// Secret is a key that the agent uses without knowing it, if the caller has it.
type Secret struct {
	Name string // of the caller's variable
	Host string // that gets it, in the form of --allow-net
	// BaseURL is the variable with the address of an API in place of that of Host. Path is what the
	// agent expects behind the host in it, such as "/v1".
	BaseURL, Path string
	// Args are given to an agent that uses the key. {url} in them is the address that it uses, with
	// Path: for an agent that reads no variable for it.
	Args []string
	// Requests are all that may be sent with the key, as METHOD PATH: "POST /v1/messages".
	Requests []string
	// Intercept lets the agent reach Host by its own name, over TLS that is opened, unless the
	// caller has set BaseURL.
	Intercept bool
}

// HomeRules are the rules for the home directory: Home, and none-rules for the names of secrets.
func (p *Profile) HomeRules() []policy.Rule {
	rules := slices.Clone(p.Home)
	for _, name := range secretname.All() {
		r := policy.Rule{Pattern: name.Pattern, Type: policy.Glob, Permission: policy.None, Own: true, Source: mountspec.ProfileSource + p.Name + HidesSecretNames}
		if p.HideSecretNames {
			r.Priority = preset.SecretPriority
		}
		rules = append(rules, r)
	}
	return rules
}

// HidesSecretNames ends the Source of a rule of HomeRules that hides a name of secrets.
const HidesSecretNames = ", names of secrets" //nolint:gosec // words for people

// KeyNames are the names of the keys, for people.
func (p *Profile) KeyNames() string {
	names := make([]string, len(p.Secrets))
	for i, s := range p.Secrets {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

// HasSecret returns the secret that has the name of a variable.
func (p *Profile) HasSecret(name string) bool {
	return slices.ContainsFunc(p.Secrets, func(s Secret) bool { return s.Name == name })
}

// SecretOf returns the key that has the token of a login.
func (p *Profile) SecretOf(l login.Spec) (Secret, bool) {
	for _, s := range p.Secrets {
		if l.Secret != "" && s.Name == l.Secret {
			return s, true
		}
	}
	return Secret{}, false
}
