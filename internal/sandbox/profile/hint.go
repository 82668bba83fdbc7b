package profile

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/yamlfile"
)

// Hint is how an agent is given HintText.
type Hint struct {
	Args []string   // before the caller's; {hint} in them is the text
	Set  []Variable // unless the caller has set them; {hint} in them is the text
	// Unless is a word with which the user gives instructions of the same kind, which those of
	// agentfense would replace: "" for none. UnlessIn are files of the home directory and of the
	// project that may have it.
	Unless   string
	UnlessIn []string
	// Commands are words of the agent that take none of Args: the hint is left out if one of them
	// is an argument.
	Commands []string
}

// HintText is what every agent learns of its sandbox. It has no character that a string of JSON or
// TOML, or a shell between quotes, would read as another.
const HintText = "You work in a sandbox of agentfense. Its policy may refuse paths and hosts. " +
	"When something is refused, do not try it again: read /run/agentfense/README.md and the last lines of /run/agentfense/denied.jsonl, " +
	"which say why and what to ask the user for."

// hintMark stands for HintText in a profile.
const hintMark = "{hint}"

// Texts returns the arguments and the variables with the text in them.
func (h Hint) Texts() (args []string, set []Variable) {
	args, set = slices.Clone(h.Args), slices.Clone(h.Set)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, hintMark, HintText)
	}
	for i, v := range set {
		set[i].Value = strings.ReplaceAll(v.Value, hintMark, HintText)
	}
	return args, set
}

// readHint reads a hint in place of that of the profile that this one extends.
func (r *reader) readHint(n *yaml.Node) error {
	r.profile.Hint = Hint{}
	_, err := r.Mapping(n, "hint", r.hintFields())
	return err
}

// hintFields are the keys of a hint.
func (r *reader) hintFields() []yamlfile.Field {
	h := &r.profile.Hint
	return []yamlfile.Field{
		r.texts("args", &h.Args, checkArg),
		{Key: "set", Read: func(n *yaml.Node) error { return r.readSet(n, &h.Set) }},
		r.text("unless", &h.Unless, checkArg),
		r.texts("unless_in", &h.UnlessIn, checkLogin),
		r.texts("commands", &h.Commands, checkArg),
	}
}
