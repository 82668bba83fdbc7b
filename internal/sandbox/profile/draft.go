package profile

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/sandbox/learn"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// Draft is a profile that is made from what a command used. What a person has to decide is in it as
// comments.
type Draft struct {
	Name    string
	Command string   // the program, as the PATH has it
	Program string   // the path of the program on this host; "" if it is not there
	Shown   []string // directories of this host that are shown for it
	From    string   // for people: what the rules were learned from
	Preset  string   // of the workspace
	Rules   []learn.Rule
	Secrets []Look // paths with names of secrets, which the command did not see
	Hosts   []learn.Host
	Refused []RefusedHost
	Notes   []string
}

// Look is a path that a command used, and how, for people.
type Look struct {
	Path vpath.Path
	How  string
}

// RefusedHost is a host that a command could not reach. Text has the form of --allow-net, or is for
// people alone.
type RefusedHost struct {
	Text  string
	Count int
}

// cacheDir is a directory of the home directory. What is new in it can be made again.
const cacheDir = "/.cache/"

// Text returns the file of the profile. Errors: Invalid for what a file cannot hold.
func (d *Draft) Text() ([]byte, error) {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Written by `agentfense profile new %s`, from %s", d.Name, vpath.Escape(d.From))
	line("# Read each line before you use it, and remove what the agent does not need. Then run:")
	line("#   agentfense %s", d.Name)
	for _, n := range d.Notes {
		line("# Note: %s", vpath.Escape(n))
	}
	line("version: %d\ntitle: %s\ncommand: %s", Version, yamlfile.Quote(d.Name), yamlfile.Quote(d.Command))
	d.writeProgram(line)
	line("# install: npm install -g … # for people: how to install it\n")
	line("# The project, unless it has a policy or a flag says otherwise.\npreset: %s\n", d.Preset)
	d.writeHome(line)
	line("\n# Which of your variables the agent needs is not known. Never pass on a key: see secrets.")
	line("# set: {NAME: \"value\"} # unless you have set NAME\n# pass: [NAME] # with your value\n")
	d.writeHosts(line)
	line("\n# A key in your environment that the agent uses without knowing it, and all that may be sent with it.")
	line("# secrets:\n#   - {name: MY_API_KEY, host: api.example.com, base_url: MY_API_URL, requests: [\"POST /v1/**\"]}")
	text := []byte(b.String())
	return text, d.check(text)
}

func (d *Draft) writeProgram(line func(string, ...any)) {
	switch {
	case d.Program == "":
		line("# When this was written, there was no such program on the PATH.")
	case len(d.Shown) == 0:
		line("# It was %s, which is part of the system inside.", vpath.Escape(d.Program))
	default:
		line("# It was %s. With your toolchains, these are shown: %s", vpath.Escape(d.Program), vpath.Escape(strings.Join(d.Shown, ", ")))
	}
}

func (d *Draft) writeHome(line func(string, ...any)) {
	line("# The home directory. What no rule shows does not exist. What the agent makes there besides is its")
	line("# own: it stays in the sandbox. Changes of what rules let be written wait for a review. For a history or")
	line("# a login, which starts nothing, add apply: keep: then it is there the next time, without a review.\nhome:")
	line("  - {pattern: /, type: file, permission: write} # it may make files there\n  - {pattern: \"**\", permission: none}")
	for _, r := range d.rules() {
		if isCache(r.Rule) {
			line("  # A cache, which stays in the sandbox without this rule: %s\n  # - {%s}", r.Evidence, learn.RuleText(r.Rule))
			continue
		}
		line("  # %s\n  - {%s}", r.Evidence, learn.RuleText(r.Rule))
	}
	for i, s := range d.Secrets {
		if i == 0 {
			line("  # It looked for these. They did not show, because their names are those of secrets. If one is its")
			line("  # login, remove the # before the rule.")
		}
		line("  # - {pattern: %s, permission: write, type: file, priority: %d, apply: keep} # %s", yamlfile.Quote(string(s.Path)), preset.SecretPriority, vpath.Escape(s.How))
	}
	line("# Names of secrets stay hidden, whatever the rules show. A rule with priority: %d shows one.\nhide_secret_names: true", preset.SecretPriority)
	line("# Files of which one is there after a login, so that the agent says if none is.")
	if len(d.Secrets) == 0 {
		line("# login: [.my-agent/auth.json]")
	}
	for _, s := range d.Secrets {
		line("# login: [%s] # if it is this file", yamlfile.Quote(s.Path.Rel()))
	}
}

// isCache reports whether a rule permits writing what can be made again.
func isCache(r policy.Rule) bool {
	return r.Permission == policy.Write && strings.HasPrefix(r.Pattern, cacheDir)
}

// rules are the learned rules, and rules for the directories in which they let files be written:
// the agent makes temporary files there, with names that nothing predicts.
func (d *Draft) rules() []learn.Rule {
	var dirs []string
	for _, r := range d.Rules {
		dir := path.Dir(r.Pattern)
		if strings.HasSuffix(r.Pattern, "/**") { // which matches the directory, too
			continue
		}
		if r.Permission == policy.Write && !isCache(r.Rule) && dir != "/" && !strings.ContainsAny(dir, policy.Metacharacters) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	rules := slices.DeleteFunc(slices.Clone(d.Rules), func(r learn.Rule) bool { return slices.Contains(dirs, r.Pattern) })
	for _, dir := range dirs {
		rules = append(rules, learn.Rule{
			Rule: policy.Rule{Pattern: dir, Type: policy.File, Permission: policy.Write}, Evidence: "it may make more files there, which are its own",
		})
	}
	slices.SortStableFunc(rules, func(a, b learn.Rule) int { return strings.Compare(a.Pattern, b.Pattern) })
	return rules
}

// times is how often something was, for people.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (d *Draft) writeHosts(line func(string, ...any)) {
	if len(d.Hosts) == 0 {
		line("# It reached no host.\nnetwork: []")
	} else {
		line("network:")
	}
	for _, h := range d.Hosts {
		how := "permitted in the learned policy"
		if h.Connections > 0 {
			how = "connected " + times(h.Connections)
		}
		line("  - %s # %s", yamlfile.Quote(h.Text), how)
	}
	for i, r := range d.Refused {
		if i == 0 {
			line("# It tried to reach these, and was refused. Add those that it needs.")
		}
		line("#   - %s # refused %s", vpath.Escape(r.Text), times(r.Count))
	}
}

// check reads the file, and compares it with what it is to hold.
func (d *Draft) check(text []byte) error {
	p, err := Parse(d.Name, d.Name+".yaml", text, nil)
	if err != nil {
		return err
	}
	for _, r := range d.rules() {
		if !isCache(r.Rule) && !slices.ContainsFunc(p.Home, func(has policy.Rule) bool {
			has.Source = r.Source
			return has == r.Rule
		}) {
			return errdefs.New(errdefs.Invalid, "profile %s: a file cannot hold the pattern %s", d.Name, vpath.Quote(r.Pattern))
		}
	}
	return nil
}
