package profile

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// MaxBytes bounds the file of a profile.
const MaxBytes = 1 << 20

// nameForm is that of a profile: it is a verb, and the name of a file.
var nameForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`) })

// CheckName refuses what cannot be the name of a profile. Errors: Invalid.
func CheckName(name string) error {
	if !nameForm().MatchString(name) {
		return errdefs.New(errdefs.Invalid, "profile %s: want 1 to 32 lower-case letters, digits and -, and a letter first", vpath.Quote(name))
	}
	return nil
}

// reader turns the nodes of a file into a Profile.
type reader struct {
	yamlfile.File
	profile *Profile
	base    func(name string) (*Profile, error) // that extends names
}

// Parse reads the file of the profile name; file stands for it in errors. base finds the profile
// that this one extends. Errors: Invalid, with the file, the line and the nearest valid word.
func Parse(name, file string, text []byte, base func(name string) (*Profile, error)) (*Profile, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	r := reader{File: yamlfile.File(file), profile: &Profile{Name: name, Origin: file, Text: string(text)}, base: base}
	if len(text) > MaxBytes {
		return nil, r.At(1, "the file is longer than %d bytes", MaxBytes)
	}
	n, err := r.ParseVersioned(text, Version)
	if err != nil {
		return nil, err
	}
	return r.profile, r.readFile(n)
}

func (r *reader) readFile(n *yaml.Node) error {
	if err := r.extend(n); err != nil {
		return err
	}
	p := r.profile
	has, err := r.Mapping(n, "profile", r.fields())
	switch {
	case err != nil:
		return err
	case !has["version"]:
		return r.At(n.Line, "version is missing: the file begins with version: %d", Version)
	case p.Command == "":
		return r.At(n.Line, "command is missing: name the agent's program")
	}
	return r.checkKeys(n)
}

// fields are the keys of a profile.
func (r *reader) fields() []yamlfile.Field {
	p := r.profile
	return []yamlfile.Field{
		{Key: "version", Read: func(v *yaml.Node) error { return r.CheckVersion(v, Version) }},
		{Key: "extends", Read: func(*yaml.Node) error { return nil }}, // extend has read it
		r.TextField("title", &p.Title),
		r.text("command", &p.Command, CheckCommand),
		r.TextField("install", &p.Install), r.TextField("tested", &p.Tested),
		{Key: "preset", Read: r.readPreset},
		r.texts("args", &p.Args, checkArg),
		{Key: "home", Read: r.readHome},
		r.flag("hide_secret_names", &p.HideSecretNames),
		{Key: "login", Read: r.readLogin},
		{Key: "set", Read: func(v *yaml.Node) error { return r.readSet(v, &r.profile.Set) }},
		r.texts("pass", &p.Pass, checkVariable),
		{Key: "network", Read: r.readHosts},
		{Key: "secrets", Read: r.readSecrets},
		{Key: "hint", Read: r.readHint},
		{Key: "scratch", Read: r.readScratch},
	}
}

// extend begins with a copy of the profile that this one extends. Its lists come before those of
// this one, and its single values count where this one has none.
func (r *reader) extend(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return nil // Mapping refuses it
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != "extends" {
			continue
		}
		name, err := r.Text(n.Content[i+1], "extends")
		if err != nil {
			return err
		}
		base, err := r.base(name)
		if err != nil {
			return r.At(n.Content[i+1].Line, "extends: %w", err)
		}
		own := r.profile
		copied := *base
		copied.Name, copied.Origin, copied.Text = own.Name, own.Origin, own.Text
		*own = copied
	}
	return nil
}

// text is the field of one text that check accepts.
func (r *reader) text(key string, to *string, check func(string) error) yamlfile.Field {
	return yamlfile.Field{Key: key, Read: func(n *yaml.Node) (err error) {
		if *to, err = r.Text(n, key); err != nil {
			return err
		}
		if err := check(*to); err != nil {
			return r.At(n.Line, "%s: %w", key, err)
		}
		return nil
	}}
}

// texts is the field of a list of texts that check accepts. They are added to those of the profile
// that this one extends.
func (r *reader) texts(key string, to *[]string, check func(string) error) yamlfile.Field {
	return yamlfile.Field{Key: key, Read: func(n *yaml.Node) error {
		more, err := r.Texts(n, key)
		if err != nil {
			return err
		}
		for i, text := range more {
			if err := check(text); err != nil {
				return r.At(n.Content[i].Line, "%s: %w", key, err)
			}
		}
		*to = append(slices.Clip(*to), more...)
		return nil
	}}
}

func (r *reader) readPreset(n *yaml.Node) error {
	name, err := r.Text(n, "preset")
	if err != nil {
		return err
	}
	if _, err := preset.Rules(name); err != nil {
		return r.At(n.Line, "%w", err)
	}
	r.profile.Preset = name
	return nil
}

func (r *reader) readHome(n *yaml.Node) error {
	rules, err := policyfile.ReadRules(r.File, n)
	if err != nil {
		return err
	}
	for i, rule := range rules {
		if rest, is := strings.CutPrefix(rule.Pattern, "~"); is && (rest == "" || rest[0] == '/') {
			return r.At(n.Content[i].Line, "pattern %s: patterns begin at the home directory: write %s", vpath.Quote(rule.Pattern), vpath.Quote("/"+strings.TrimPrefix(rest, "/")))
		}
	}
	all := append(slices.Clip(r.profile.Home), rules...)
	if _, err := policy.Compile(all, policy.Options{}); err != nil {
		return err
	}
	for i, rule := range all {
		if !strings.HasPrefix(rule.Source, mountspec.ProfileSource) {
			all[i].Source = mountspec.ProfileSource + r.profile.Name + " (" + rule.Source + ")"
		}
	}
	r.profile.Home = all
	return nil
}

func (r *reader) readSet(n *yaml.Node, to *[]Variable) error {
	if n.Kind != yaml.MappingNode {
		return r.At(n.Line, "set is a mapping of variables to values, not %s", yamlfile.Shape(n))
	}
	var names []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		text, err := r.Text(value, name.Value)
		if err != nil {
			return err
		}
		if err := errors.Join(checkVariable(name.Value), checkArg(text)); err != nil {
			return r.At(name.Line, "set: %w", err)
		}
		if slices.Contains(names, name.Value) {
			return r.At(name.Line, "set: variable %s is given twice", vpath.Quote(name.Value))
		}
		names = append(names, name.Value)
		*to = append(slices.DeleteFunc(slices.Clone(*to), func(v Variable) bool { return v.Name == name.Value }), Variable{name.Value, text})
	}
	return nil
}

func (r *reader) readHosts(n *yaml.Node) error {
	hosts, err := r.Texts(n, "network")
	if err != nil {
		return err
	}
	for i, host := range hosts {
		if _, err := hostlist.Parse([]string{host}); err != nil {
			return r.At(n.Content[i].Line, "network: %w", err)
		}
	}
	r.profile.Hosts = append(slices.Clip(r.profile.Hosts), hosts...)
	return nil
}

func (r *reader) readSecrets(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return r.At(n.Line, "secrets is a list, not %s", yamlfile.Shape(n))
	}
	for _, item := range n.Content {
		var s Secret
		has, err := r.Mapping(item, "secret", r.secretFields(&s))
		switch {
		case err != nil:
			return err
		case !has["name"] || !has["host"]:
			return r.At(item.Line, "a secret has a name, that of its variable, and a host")
		case r.profile.HasSecret(s.Name):
			return r.At(item.Line, "secret %s is given twice", vpath.Quote(s.Name))
		}
		if err := hostlist.CheckSecret(s.Name, s.Host, s.Requests); err != nil {
			return r.At(item.Line, "%w", err)
		}
		if _, err := hostlist.Opened(nil, s.Host); s.Intercept && err != nil {
			return r.At(item.Line, "%w", err)
		}
		r.profile.Secrets = append(slices.Clip(r.profile.Secrets), s)
	}
	return nil
}

// secretFields are the keys of a secret.
func (r *reader) secretFields(s *Secret) []yamlfile.Field {
	return []yamlfile.Field{
		r.TextField("name", &s.Name), r.TextField("host", &s.Host), r.text("base_url", &s.BaseURL, checkVariable), r.text("path", &s.Path, checkURLPath),
		r.texts("args", &s.Args, checkArg), r.texts("requests", &s.Requests, checkArg), // CheckSecret reads these
		r.flag("intercept", &s.Intercept),
	}
}
