package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/secretscan"
)

// Bounds of the file that init writes.
const (
	maxInitRules   = 1000 // one for each file whose content is secret
	maxInitSecrets = 20   // expectations of secrets
	maxInitDirs    = 8    // expectations of directories
)

const initHead = `# What a coding agent may do with each path of this project.
# After a change run: agentfense policy check && agentfense policy test
#
# Permissions: none (does not exist), view (listed, not readable), read, write.
# Patterns are like those of .gitignore: "*.pem" and "secrets/" match at any
# depth, "/src/**" only from the root.
version: 1

# %s: %s. Changes wait until you apply them.
preset: %s

`

// policyFile returns the text of a policy file for the project, and its policy. The text was
// loaded again and all its expectations hold. Errors: Invalid for the preset.
func (f *project) policyFile(presetName string) (string, *policy.Policy, error) {
	base, err := preset.Rules(presetName)
	if err != nil {
		return "", nil, err
	}
	p, err := policy.Compile(base, policy.Options{})
	if err != nil {
		return "", nil, err
	}
	readable := f.readable(p)
	if len(readable) > maxInitRules {
		return "", nil, errdefs.New(errdefs.Exhausted, "init: %d readable files hold secrets, and at most %d rules are written: "+
			"remove them or hide their directories; `agentfense policy scan` lists them", len(readable), maxInitRules)
	}
	var b strings.Builder
	fmt.Fprintf(&b, initHead, presetName, preset.Summary(presetName), presetName)
	writeRules(&b, readable)
	f.writeHosts(&b)
	f.writeScratch(&b)
	f.writeExpectations(&b, p, readable)
	p, err = checkInitial(b.String(), readable)
	return b.String(), p, err
}

// readable returns the paths of files with secrets that p lets a command read.
func (f *project) readable(p *policy.Policy) []vpath.Path {
	var out []vpath.Path
	for _, found := range f.scan.Findings {
		if p.Decide(found.Path).Permission >= policy.Read {
			out = append(out, found.Path)
		}
	}
	return slices.Compact(out) // findings are sorted by path
}

func writeRules(b *strings.Builder, readable []vpath.Path) {
	if len(readable) > 0 {
		b.WriteString("rules:\n  # These files seem to have secrets in their content.\n")
		for _, path := range readable {
			fmt.Fprintf(b, "  - {pattern: %s, type: file, permission: none, priority: %d}\n", yamlfile.Quote(string(path)), preset.SecretPriority)
		}
	} else {
		b.WriteString("# rules:\n")
	}
	b.WriteString(`  # Hide what the agent must not know of.
  # - {pattern: "/private/", permission: none, priority: 100}
  # Show that a file is there without its content.
  # - {pattern: "*.sqlite", permission: view, priority: 20}
  # Let the agent read, but not change.
  # - {pattern: "/deploy/**", permission: read, priority: 20}

`)
}

func (f *project) writeHosts(b *strings.Builder) {
	var hosts []string
	for _, l := range f.languages {
		if l.Hosts != "" {
			hosts = append(hosts, yamlfile.Quote(l.Hosts))
		}
	}
	if len(hosts) == 0 {
		hosts = []string{`"api.example.com"`}
	}
	fmt.Fprintf(b, "# Commands have no network. To let them reach hosts:\n# network:\n#   allow: [%s]\n\n", strings.Join(hosts, ", "))
}

func (f *project) writeScratch(b *strings.Builder) {
	var dirs []string
	for _, l := range f.languages {
		if l.Scratch != "" {
			dirs = append(dirs, l.Scratch)
		}
	}
	if len(dirs) > 0 {
		fmt.Fprintf(b, "# Installed packages that need no review:\n# scratch: [%s]\n\n", strings.Join(dirs, ", "))
	}
}

func (f *project) writeExpectations(b *strings.Builder, p *policy.Policy, readable []vpath.Path) {
	b.WriteString("# What agentfense policy test checks.\nexpect:\n")
	secrets := slices.Clone(readable)
	for _, found := range f.scan.Findings {
		if p.Decide(found.Path).Permission == policy.None {
			secrets = append(secrets, found.Path)
		}
	}
	secrets = slices.Compact(secrets)
	if len(secrets) > maxInitSecrets {
		secrets = secrets[:maxInitSecrets]
	}
	hidden := policy.None
	if d := p.Decide("/.env"); d.Permission == hidden && !slices.Contains(secrets, "/.env") {
		secrets = append(secrets, "/.env")
	}
	for _, path := range secrets {
		fmt.Fprintf(b, "  - {path: %s, permission: %s}\n", yamlfile.Quote(string(path)), hidden)
	}
	for _, name := range f.dirs[:min(len(f.dirs), maxInitDirs)] {
		path := vpath.Root.Child(name)
		if d := p.Decide(path); !d.Transform.IsZero() || policy.None == d.ForDir() {
			continue
		}
		fmt.Fprintf(b, "  - {path: %s, permission: %s}\n", yamlfile.Quote(string(path)+"/"), p.Decide(path).ForDir())
	}
	if len(secrets)+len(f.dirs) == 0 {
		fmt.Fprintf(b, "  - {path: /file, permission: %s}\n", p.Decide("/file").Permission)
	}
}

// checkInitial loads what init would write and checks that it hides the paths and that its
// expectations hold. Errors: Invalid for a path that no policy file can name.
func checkInitial(text string, hidden []vpath.Path) (*policy.Policy, error) {
	doc, rules, err := parsePolicy([]byte(text), policy.ProjectFile.Rel())
	if err != nil {
		return nil, err
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		return nil, err
	}
	for _, path := range hidden {
		if p.Decide(path).Permission != policy.None {
			return nil, errdefs.New(errdefs.Invalid, "init: %s holds a secret and no rule can name it: rename the file", path)
		}
	}
	for _, o := range policyfile.Test(p, doc.Expect) {
		if !o.Holds() {
			return nil, errdefs.New(errdefs.Invalid, "init: %s is %s and not %s: rename it", o.Path, o.Got, o.Permission)
		}
	}
	return p, nil
}

// sayFound tells what init found.
func (e *env) sayFound(f project) {
	names := make([]string, len(f.languages))
	for i, l := range f.languages {
		names[i] = l.Name
	}
	if len(names) > 0 {
		e.say("found: %s", strings.Join(names, ", "))
	}
	if len(f.agents) > 0 {
		e.say("agents installed: %s", strings.Join(f.agents, ", "))
	}
	if n := len(f.scan.Findings); n > 0 {
		e.say("%s with secrets, all hidden by the policy; `agentfense policy scan` lists them", plural(n, "place"))
	}
	if f.scan.Partial {
		e.say("warning: only the first %s were searched for secrets; `agentfense policy scan` searches up to %d", plural(f.scan.Files, "file"), secretscan.MaxFiles)
	}
}
