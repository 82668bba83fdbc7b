package config

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
)

// MountRoot is a directory of this host. Clients may show their sandboxes what is below it.
type MountRoot struct {
	Path     string
	Writable bool // commands may write in such a mount, and Apply brings that into the directory
	// Keep says that rules of such a mount may have apply: keep: the end of a command brings what
	// they match into the directory without a review.
	Keep   bool
	Owners []string // of sandboxes that may have it; none: any owner
}

// Secret is a secret that clients may name for their sandboxes.
type Secret struct {
	Name   string
	Stored hostlist.Secret // where its value is from and where it goes, without a placeholder
	Owners []string        // of sandboxes that may use it; none: any owner
}

// The tables: keys with a list of mappings in the file. They say of each field whether it is a
// list.
var tables = map[string]map[string]bool{
	keyRoots:   {"path": false, "writable": false, "keep": false, "owners": true},
	keySecrets: {"name": false, "source": false, "hosts": true, "requests": true, "owners": true},
}

const (
	keyRoots   = "mounts.roots"
	keySecrets = "secrets"
)

// row is a mapping of a table.
type row struct {
	texts map[string]string
	lists map[string][]string
}

// readTable reads the rows of a table.
func (l *loader) readTable(n *yaml.Node, key string) ([]row, error) {
	if n.Kind != yaml.SequenceNode || n.Anchor != "" {
		return nil, l.file.At(n.Line, "%s is a list of mappings, not %s", key, yamlfile.Shape(n))
	}
	var rows []row
	for _, item := range n.Content {
		r, err := l.readRow(item, key)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (l *loader) readRow(n *yaml.Node, key string) (row, error) {
	r := row{map[string]string{}, map[string][]string{}}
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		return r, l.file.At(n.Line, "%s has mappings of %s, not %s", key, strings.Join(fieldsOf(key), ", "), yamlfile.Shape(n))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, content := n.Content[i].Value, n.Content[i+1]
		isList, known := tables[key][name]
		_, twice := r.texts[name]
		field := key + "." + name
		var err error
		switch {
		case !known:
			err = l.file.At(n.Content[i].Line, "%s: %w", key, nearest.Unknown("key", name, fieldsOf(key)))
		case twice || r.lists[name] != nil:
			err = l.file.At(n.Content[i].Line, "%s is given twice", field)
		case isList && content.Kind == yaml.SequenceNode:
			r.lists[name], err = l.readItems(content, field)
		case isList:
			err = l.file.At(content.Line, "%s is a list, such as [a, b], not %s", field, yamlfile.Shape(content))
		default:
			r.texts[name], err = l.file.Text(content, field)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func fieldsOf(key string) []string {
	var names []string
	for name := range tables[key] {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// setMountRoots takes roots. In the environment ":" separates their paths, of which none is
// writable.
func setMountRoots(c *Config, v value) error {
	if !v.isList && v.text != "" {
		for path := range strings.SplitSeq(v.text, ":") {
			v.rows = append(v.rows, row{texts: map[string]string{"path": path}})
		}
	}
	c.Mounts.Roots = nil
	for i, r := range v.rows {
		root, err := rootOf(r, v.dir)
		if err == nil && slices.ContainsFunc(c.Mounts.Roots, func(o MountRoot) bool { return o.Path == root.Path }) {
			err = errdefs.New(errdefs.Invalid, "%s is listed twice", vpath.Quote(root.Path))
		}
		if err != nil {
			return errdefs.New(errdefs.Invalid, "entry %d: %w", i+1, err)
		}
		c.Mounts.Roots = append(c.Mounts.Roots, root)
	}
	return checkNested(c.Mounts.Roots)
}

// checkNested refuses a root that is narrower than one that contains it: a mount of the outer
// directory shows the inner one, too.
func checkNested(roots []MountRoot) error {
	for _, outer := range roots {
		for _, inner := range roots {
			if inner.Path == outer.Path || !safefs.IsBelow(inner.Path, outer.Path) {
				continue
			}
			admits := func(owner string) bool { return includes(inner.Owners, owner) }
			forAll := len(inner.Owners) == 0 || len(outer.Owners) > 0 && !slices.ContainsFunc(outer.Owners, func(o string) bool { return !admits(o) })
			if !forAll || outer.Writable && !inner.Writable || outer.Keep && !inner.Keep {
				return errdefs.New(errdefs.Invalid, "%s is in %s, which more owners may have, or write, or which has keep: who mounts the outer directory sees the inner one", vpath.Quote(inner.Path), vpath.Quote(outer.Path))
			}
		}
	}
	return nil
}

// rootOf reads a root. Its path starts at dir if it is relative.
func rootOf(r row, dir string) (MountRoot, error) {
	root := MountRoot{Owners: r.lists["owners"]}
	path, given := r.texts["path"]
	if !given {
		return root, errdefs.New(errdefs.Invalid, "path is missing")
	}
	if err := (value{text: path, dir: dir}).path(&root.Path); err != nil {
		return root, err
	}
	if err := mountspec.CheckSource(root.Path); err != nil {
		return root, err
	}
	for field, to := range map[string]*bool{"writable": &root.Writable, "keep": &root.Keep} {
		if text, given := r.texts[field]; given {
			if err := (value{text: text}).boolean(to); err != nil {
				return root, errdefs.New(errdefs.Invalid, "%s: %w", field, err)
			}
		}
	}
	if root.Keep && !root.Writable {
		return root, errdefs.New(errdefs.Invalid, "keep: goes with writable: true")
	}
	return root, checkOwners(r.lists)
}

// checkOwners refuses a list of owners that would mean no owner, or any.
func checkOwners(lists map[string][]string) error {
	owners, given := lists["owners"]
	if given && (len(owners) == 0 || slices.Contains(owners, "")) {
		return errdefs.New(errdefs.Invalid, "owners: name at least one owner, or leave it out for any owner")
	}
	return nil
}

// includes reports whether the owner is one of owners, or owners are any.
func includes(owners []string, owner string) bool {
	return len(owners) == 0 || slices.Contains(owners, owner)
}

// RootOf returns the root for mounts of the path by the owner: the innermost one that contains it.
// Only the text of the path counts.
func (c *Config) RootOf(path, owner string) (found MountRoot, ok bool) {
	for _, root := range c.Mounts.Roots {
		if safefs.IsBelow(path, root.Path) && len(root.Path) > len(found.Path) {
			found = root
		}
	}
	return found, found.Path != "" && includes(found.Owners, owner)
}

// SecretOf returns the secret that the owner calls by a name.
func (c *Config) SecretOf(name, owner string) (Secret, bool) {
	i := slices.IndexFunc(c.Secrets, func(s Secret) bool { return s.Name == name && includes(s.Owners, owner) })
	if i < 0 {
		return Secret{}, false
	}
	return c.Secrets[i], true
}

// setSecrets takes secrets.
func setSecrets(c *Config, v value) error {
	if !v.isList && v.text != "" {
		return errdefs.New(errdefs.Invalid, "a list of mappings: set it in a configuration file")
	}
	c.Secrets = nil
	for i, r := range v.rows {
		s, err := secretOf(r, v.dir)
		if err == nil && slices.ContainsFunc(c.Secrets, s.sharesName) {
			err = errdefs.New(errdefs.Invalid, "secret %s is listed twice for one owner", s.Name)
		}
		if err != nil {
			return errdefs.New(errdefs.Invalid, "entry %d: %w", i+1, err)
		}
		c.Secrets = append(c.Secrets, s)
	}
	return nil
}

// sharesName reports whether an owner could mean either secret by its name.
func (s Secret) sharesName(other Secret) bool {
	isOther := func(owner string) bool { return includes(other.Owners, owner) }
	return s.Name == other.Name && (len(s.Owners) == 0 || slices.ContainsFunc(s.Owners, isOther))
}

// secretOf reads a secret. The path of a file starts at dir if it is relative.
func secretOf(r row, dir string) (Secret, error) {
	s := Secret{Name: r.texts["name"], Owners: r.lists["owners"]}
	hosts := r.lists["hosts"]
	source := cmp.Or(r.texts["source"], secret.FromVariable+":"+s.Name)
	kind, path, _ := strings.Cut(source, ":")
	switch {
	case s.Name == "" || strings.ContainsAny(s.Name, "=@"):
		return s, errdefs.New(errdefs.Invalid, "name %s: want the name of a variable, such as API_KEY", vpath.Quote(s.Name))
	case path == "" || !slices.Contains([]string{secret.FromVariable, secret.FromFile, secret.FromCommand}, kind):
		// It may be the value itself, which is not shown.
		return s, errdefs.New(errdefs.Invalid, "secret %s: source: want env:VARIABLE, file:PATH or cmd:COMMAND", s.Name)
	case len(hosts) == 0:
		return s, errdefs.New(errdefs.Invalid, "secret %s: hosts is missing", s.Name)
	case slices.ContainsFunc(hosts, func(h string) bool { return strings.ContainsAny(h, "@,") }):
		return s, errdefs.New(errdefs.Invalid, "secret %s: hosts: want HOST or HOST:PORT", s.Name)
	case kind == secret.FromFile:
		if err := (value{text: path, dir: dir}).path(&path); err != nil {
			return s, errdefs.New(errdefs.Invalid, "secret %s: source: %w", s.Name, err)
		}
		source = kind + ":" + path
	}
	parsed, err := secret.Parse(s.Name + "=" + source + "@" + strings.Join(hosts, ","))
	if err == nil {
		err = secret.Check([]secret.Secret{parsed})
	}
	if err != nil {
		return s, errdefs.New(errdefs.Invalid, "secret %s: %w", s.Name, err)
	}
	s.Stored.Text = parsed.String()
	for _, request := range r.lists["requests"] {
		_, limit, err := secret.ParseLimit(s.Name + "=" + request)
		if err != nil {
			return s, errdefs.New(errdefs.Invalid, "secret %s: requests: %w", s.Name, err)
		}
		s.Stored.Allow = append(s.Stored.Allow, limit.String())
	}
	return s, checkOwners(r.lists)
}

// SecretFiles are the files that have values of secrets.
func (c *Config) SecretFiles() []string { return c.sourcesOf(secret.FromFile) }

// SecretVariables are the variables that have values of secrets.
func (c *Config) SecretVariables() []string { return c.sourcesOf(secret.FromVariable) }

func (c *Config) sourcesOf(kind string) []string {
	var texts []string
	for _, s := range c.Secrets {
		parsed, err := secret.Parse(s.Stored.Text)
		if err == nil && parsed.Source.Kind == kind {
			texts = append(texts, parsed.Source.Text)
		}
	}
	return texts
}
