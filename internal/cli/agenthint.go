package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
)

// giveHint returns arguments with which the agent knows where refusals are explained, and gives it
// the variables for it. It leaves both out where they would replace instructions of the user.
func (o *runOptions) giveHint(e *env, in *inside, p *profile.Profile) []string {
	isCommand := func(arg string) bool { return slices.Contains(p.Hint.Commands, arg) }
	if asksOnly(o.agentArgs) || slices.ContainsFunc(o.agentArgs, isCommand) || in.hasInstructions(p.Hint, o.agentArgs) {
		return nil
	}
	args, variables := p.Hint.Texts()
	for _, v := range variables {
		if e.getenv(v.Name) == "" {
			o.Env = addVariables(slices.Clone(o.Env), v.Name+"="+v.Value)
		}
	}
	return args
}

// asksOnly reports whether an agent is asked for its version or help, and does no work. It answers
// such a line at once if that has nothing else.
func asksOnly(args []string) bool {
	return len(args) == 1 && slices.Contains([]string{"--version", "-v", "-V", "--help", "-h"}, args[0])
}

// maxInstructions bounds a file in which a word is looked for.
const maxInstructions = 1 << 20

// hasInstructions reports whether the user gives an agent instructions of the kind of a hint, in
// its arguments or in a file. A file that cannot be read may have them.
func (in *inside) hasInstructions(h profile.Hint, args []string) bool {
	if h.Unless == "" {
		return false
	}
	if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, h.Unless) }) {
		return true
	}
	return slices.ContainsFunc(h.UnlessIn, func(name string) bool {
		real, err := filepath.EvalSymlinks(filepath.Join(in.realHome(), name)) // the user's own links count
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil || mayContain(filepath.Dir(real), filepath.Base(real), h.Unless):
			return true
		}
		return mayContain(string(in.record.Source.Path), name, h.Unless)
	})
}

func mayContain(dir, name, word string) bool {
	text, err := safefs.ReadRegularIn(dir, name, maxInstructions)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return bytes.Contains(text, []byte(word))
}
