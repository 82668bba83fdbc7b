package profile

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
)

// CheckCommand refuses what cannot be a program of the PATH. Errors: Invalid.
func CheckCommand(text string) error {
	if text == "" || text == "." || text == ".." || strings.ContainsAny(text, "/ \t\n\x00") {
		return errdefs.New(errdefs.Invalid, "%s: want the name of a program on the PATH; arguments go to args", vpath.Quote(text))
	}
	return nil
}

// checkArg refuses what no program can get.
func checkArg(text string) error {
	if strings.Contains(text, "\x00") {
		return errdefs.New(errdefs.Invalid, "%s: NUL bytes are not allowed", vpath.Quote(text))
	}
	return nil
}

// variableForm is that of a variable (POSIX.1-2024, 8.1).
const variableForm = `[A-Za-z_][A-Za-z0-9_]*`

var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + variableForm + `$`) })

// ofSandbox are variables that the sandbox sets.
var ofSandbox = []string{"HOME", "PWD"}

// checkVariable refuses what is no name of a variable, and those that the sandbox sets.
func checkVariable(name string) error {
	switch {
	case slices.Contains(ofSandbox, name):
		return errdefs.New(errdefs.Invalid, "variable %s is set by the sandbox", name)
	case !variable().MatchString(name):
		return errdefs.New(errdefs.Invalid, "variable %s: want a name of letters, digits and _, such as MY_AGENT_MODEL", vpath.Quote(name))
	}
	return nil
}

// checkLogin refuses what is no path of a file below the home directory.
func checkLogin(file string) error {
	if file == "." || strings.HasPrefix(file, "~") || path.Clean(file) != file || strings.HasPrefix(file, "/") || strings.HasPrefix(file, "../") || file == ".." || strings.Contains(file, "\x00") {
		return errdefs.New(errdefs.Invalid, "%s: want the path of a file, from the home directory, such as .my-agent/auth.json", vpath.Quote(file))
	}
	return nil
}

// urlPathForm is what may be behind the host in the address of an API.
const urlPathForm = `/[A-Za-z0-9._~/-]*`

var urlPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + urlPathForm + `$`) })

// checkURLPath refuses what cannot be behind the host in the address of an API.
func checkURLPath(text string) error {
	if !urlPath().MatchString(text) {
		return errdefs.New(errdefs.Invalid, "%s: want what is behind the host in the address, such as /v1", vpath.Quote(text))
	}
	return nil
}

// flag is the field of a value that is true or false.
func (r *reader) flag(key string, to *bool) yamlfile.Field {
	return yamlfile.Field{Key: key, Read: func(n *yaml.Node) error {
		text, err := r.Text(n, key)
		if err == nil && text != "true" && text != "false" {
			err = r.At(n.Line, "%s is true or false, not %s", key, vpath.Quote(text))
		}
		*to = text == "true"
		return err
	}}
}

// The values of scratch.
const (
	scratchIgnored = "ignored"
	scratchNone    = "none"
)

func (r *reader) readScratch(n *yaml.Node) error {
	text, err := r.Text(n, "scratch")
	if err == nil && text != scratchIgnored && text != scratchNone {
		err = r.At(n.Line, "scratch: %w", nearest.Unknown("value", text, []string{scratchIgnored, scratchNone}))
	}
	r.profile.IgnoredScratch = text == scratchIgnored
	return err
}

// checkKeys refuses a key that is given to the agent as a variable, too, and a login of an unknown
// key.
func (r *reader) checkKeys(n *yaml.Node) error {
	p := r.profile
	for _, l := range p.Login {
		if s, is := p.SecretOf(l); l.Secret != "" && (!is || !s.Intercept) {
			return r.At(n.Line, "login %s: secret %s: want the name of one of secrets that has intercept: true", vpath.Quote(l.File), vpath.Quote(l.Secret))
		}
	}
	isKey := func(name string) bool { return p.HasSecret(name) }
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, step := n.Content[i].Value, 1
		switch key {
		case "pass":
		case "set": // names and values
			step = 2
		default:
			continue
		}
		for j := 0; j < len(n.Content[i+1].Content); j += step {
			if item := n.Content[i+1].Content[j]; isKey(item.Value) {
				return r.At(item.Line, "%s: %s is a key under secrets, which the agent uses without knowing it; remove it from one of the two", key, item.Value)
			}
		}
	}
	return nil
}
