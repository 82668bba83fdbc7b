// Package userrules stores what a user allows, or hides, in every sandbox of one project: the
// answers to asks that are to count for the project. There is one file for each project, in the
// state directory, which no view shows. It belongs to the path of the project: a project that is
// moved, or copied, does not have it.
//
// The rules rank below the flags of a command line, and above the other rules of a policy that are
// not none. So they never show what a policy hides.
package userrules

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

const (
	// directory of the state directory has the files.
	directory = "projects"
	// version is the version of their format.
	version = 1
	// maxBytes bounds a file.
	maxBytes = 1 << 20
	// priority puts the rules below those of --write, --read and --view.
	priority = -1
	// source begins the Source of the rules. A path of this host would be shown in reasons.
	source = "your rules of the project"
)

// Rules are what the file of a project says.
type Rules struct {
	File  string // its path
	Rules []Rule
	// Hosts may be reached by sandboxes that have a network of named hosts. They are in the form of
	// hostlist.Parse.
	Hosts []string
}

// Rule is one for a policy.
type Rule struct {
	policy.Rule
	// Exact is the path that the rule is for, "" for a rule that may match several.
	Exact vpath.Path
}

// File is the path of the file of a project, which need not exist. home is the state directory,
// project a path without symbolic links.
func File(home, project string) string { return filepath.Join(home, directory, fileName(project)) }

// fileName is of the project's name, as far as it is plain, and a part of the digest of its path.
func fileName(project string) string {
	const most = 30
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '-'
	}, filepath.Base(project))
	digest := sha256.Sum256([]byte(project))
	return plain[:min(len(plain), most)] + "-" + hex.EncodeToString(digest[:8]) + ".yaml"
}

// Load reads the file of a project. It returns nil if the file does not exist. Errors: Invalid,
// with file and line.
func Load(home, project string) (*Rules, error) {
	path := File(home, project)
	text, err := read(path)
	if text == nil || err != nil {
		return nil, err
	}
	return parse(text, path, project)
}

// read returns the text of a file, nil if it does not exist. Errors: Invalid.
func read(path string) ([]byte, error) {
	text, err := safefs.ReadRegularIn(filepath.Dir(path), filepath.Base(path), maxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, errdefs.New(errdefs.Invalid, "rules of the project %s: %w", record.HostPath(path), err)
	}
	return text, nil
}

// loader reads a file.
type loader struct {
	yamlfile.File
	project string
	file    Rules
}

func parse(text []byte, path, project string) (*Rules, error) {
	l := loader{File: yamlfile.File(record.HostPath(path).String()), project: project, file: Rules{File: path}}
	document, err := l.ParseVersioned(text, version)
	if err != nil {
		return nil, err
	}
	has, err := l.Mapping(document, "the rules of a project", []yamlfile.Field{
		{Key: "version", Read: func(n *yaml.Node) error { return l.CheckVersion(n, version) }},
		{Key: "project", Read: l.readProject},
		{Key: "rules", Read: l.readRules},
		{Key: "hosts", Read: l.readHosts},
	})
	for _, key := range []string{"version", "project"} {
		if err == nil && !has[key] {
			err = l.At(document.Line, "%s is missing", key)
		}
	}
	return &l.file, err
}

func (l *loader) readProject(n *yaml.Node) error {
	text, err := l.Text(n, "project")
	if own := record.HostPath(l.project).String(); err == nil && text != own {
		err = l.At(n.Line, "project is %s, and this file is for %s: rules are for one project", vpath.Quote(text), own)
	}
	return err
}

func (l *loader) readRules(n *yaml.Node) error {
	rules, err := policyfile.ReadRules(l.File, n)
	if err != nil {
		return err
	}
	type key struct {
		pattern string
		kind    policy.PatternType
	}
	known := map[key]bool{}
	for i, r := range rules {
		line := n.Content[i].Line
		if !r.Transform.IsZero() || r.Keep || r.Priority != 0 {
			return l.At(line, "a rule has only pattern, permission, type and strict here")
		}
		if k := (key{r.Pattern, r.Type}); !known[k] { // the first one counts
			known[k] = true
			r.Source = fmt.Sprintf("%s, line %d", source, line)
			l.file.Rules = append(l.file.Rules, ranked(r))
		}
	}
	return nil
}

// ranked gives a rule its rank. A widening rule of type file would beat a none-rule, as a flag
// does that names exactly the file. So it becomes a glob that matches only this path.
func ranked(r policy.Rule) Rule {
	if r.Permission == policy.None {
		r.Origin = policy.OriginHide
		return Rule{Rule: r}
	}
	path, anchored, isEntry := r.EntryOnly()
	r.Origin, r.Priority = policy.OriginFlag, priority
	if !isEntry {
		return Rule{Rule: r}
	}
	r.Type, r.Pattern = policy.Glob, policy.GlobOf(path)
	if !anchored {
		r.Pattern = strings.TrimPrefix(r.Pattern, "/")
		return Rule{Rule: r}
	}
	return Rule{r, path}
}

func (l *loader) readHosts(n *yaml.Node) error {
	texts, err := l.Texts(n, "hosts")
	if err != nil {
		return err
	}
	for i, text := range texts {
		hosts, err := hostlist.Parse([]string{text})
		if err != nil {
			return l.At(n.Content[i].Line, "%w", err)
		}
		l.file.Hosts = append(l.file.Hosts, hosts...)
	}
	return nil
}
