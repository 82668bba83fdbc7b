// Package secret says what a secret of a sandbox is: where its value is from, which hosts get it,
// and what a program inside sees in place of it.
//
// A program inside has a placeholder. Package secretproxy puts the value in its place on the way to
// a host of the secret, and masks the value in what comes back. This package has the words for
// both, and no connections.
package secret

import (
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Domain is where the addresses of secrets are inside a sandbox. No host of the internet has a name
// below it (ICANN reserved .internal for private use).
const Domain = "agentfense.internal"

// Port is that of those addresses.
const Port = 80

// Secret is a value that a sandbox uses and does not know. It does not have the value.
type Secret struct {
	Name        string // of the variable inside
	Source      Source
	Hosts       []Target
	Limits      []allowlist.Limit // what may be asked of the hosts; none: everything
	Quota       quota.Set         // how much of it may be used
	Placeholder string
}

// Target is a host that gets the value: over TLS, or at a port of this host's loopback in clear.
type Target struct {
	Host allowlist.Host
	Port uint16
}

// The kinds of source.
const (
	FromVariable = "env"  // of the caller
	FromFile     = "file" // of this host
	FromCommand  = "cmd"  // which prints it; run by sh
	FromJSON     = "json" // KEY:PATH, a text in a JSON file of this host
)

// Source is where a value is from.
type Source struct{ Kind, Text string }

// File returns the path of the file that has the value, "" if none has, and the key there of
// FromJSON.
func (s Source) File() (path, key string) {
	switch s.Kind {
	case FromFile:
		return s.Text, ""
	case FromJSON:
		key, path, _ = strings.Cut(s.Text, ":")
		return path, key
	}
	return "", ""
}

// At returns the source with another path of its file.
func (s Source) At(path string) Source {
	if _, key := s.File(); key != "" {
		path = key + ":" + path
	}
	return Source{s.Kind, path}
}

// Changes reports whether another program may give the source another value while a sandbox runs.
func (s Source) Changes() bool { return s.Kind == FromJSON }

// String returns the source's text in a Secret's form.
func (s Source) String() string { return s.Kind + ":" + s.Text }

// Parse reads NAME[=SOURCE]@HOST[:PORT][,HOST[:PORT]…]. SOURCE is env:VARIABLE, file:PATH,
// json:KEY:PATH or cmd:COMMAND, and the variable NAME if it is left out. Errors: Invalid.
func Parse(text string) (Secret, error) {
	at := strings.LastIndexByte(text, '@') // no host has one, and a source may
	if at < 0 {
		return Secret{}, invalid(text, "want NAME@HOST, such as API_KEY@api.example.com")
	}
	name, from, given := strings.Cut(text[:at], "=")
	s := Secret{Name: name, Source: Source{FromVariable, name}}
	if !IsName(name) {
		return Secret{}, invalid(text, "want the name of a variable: letters, digits and single _, and a letter first and no _ last")
	}
	if given {
		kind, rest, _ := strings.Cut(from, ":")
		s.Source = Source{kind, rest}
		if !slices.Contains([]string{FromVariable, FromFile, FromCommand, FromJSON}, kind) || rest == "" {
			return Secret{}, invalid(text, "want NAME=env:VARIABLE@HOST, NAME=file:PATH@HOST, NAME=json:KEY:PATH@HOST or NAME=cmd:COMMAND@HOST")
		}
		if path, key := s.Source.File(); kind == FromJSON && (key == "" || path == "") {
			return Secret{}, invalid(text, "want NAME=json:KEY:PATH@HOST, such as TOKEN=json:login.token:auth.json@api.example.com")
		}
	}
	for host := range strings.SplitSeq(text[at+1:], ",") {
		r, err := allowlist.ParseRule(host)
		switch {
		case err != nil:
			return Secret{}, err
		case r.Wildcard:
			return Secret{}, invalid(text, "name each host; a secret is for no wildcard")
		case IsInside(r.Host):
			return Secret{}, invalid(text, "want a host of the internet")
		}
		s.Hosts = append(s.Hosts, Target{r.Host, r.Port})
	}
	return s, nil
}

// String returns the secret's text in its one form, which Parse reads.
func (s Secret) String() string {
	hosts := make([]string, len(s.Hosts))
	for i, t := range s.Hosts {
		hosts[i] = t.String()
	}
	return s.Name + "=" + s.Source.String() + "@" + strings.Join(hosts, ",")
}

// String returns HOST:PORT.
func (t Target) String() string { return allowlist.Rule{Host: t.Host, Port: t.Port}.String() }

// IsName reports whether a name can be that of a secret: of a variable, and its host name a label
// of DNS.
func IsName(name string) bool {
	const maxName = 50
	if name == "" || len(name) > maxName || !isLetter(name[0]) || strings.HasSuffix(name, "_") || strings.Contains(name, "__") {
		return false
	}
	for _, c := range []byte(name) {
		if !isLetter(c) && c != '_' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// ParseLimit reads NAME=METHOD[,METHOD…] PATH and returns which secret it is for. Errors: Invalid.
func ParseLimit(text string) (name string, l allowlist.Limit, err error) {
	name, rest, _ := strings.Cut(text, "=")
	l, err = allowlist.ParseRequests(rest)
	if err != nil || !IsName(name) {
		return "", allowlist.Limit{}, invalid(text, "want NAME=METHOD[,METHOD…] PATH, such as 'API_KEY=POST /v1/messages'")
	}
	return name, l, nil
}

// ParseQuota reads NAME=LIMIT=VALUE[,LIMIT=VALUE…] and returns which secret it is for. Errors:
// Invalid.
func ParseQuota(text string) (name string, set quota.Set, err error) {
	name, rest, _ := strings.Cut(text, "=")
	if !IsName(name) || !strings.Contains(rest, "=") {
		return "", nil, invalid(text, "want NAME=LIMIT=VALUE, such as API_KEY=requests=1000,rate=10/m,out=10M")
	}
	set, err = quota.ParseSecret(rest)
	return name, set, err
}

// Inside returns the name of a secret's host inside: the place in Hosts is i.
func (s Secret) Inside(i int) allowlist.Host {
	label := strings.ReplaceAll(strings.ToLower(s.Name), "_", "-")
	if i > 0 {
		label += "-" + string(rune('1'+i))
	}
	return allowlist.Host(label + "." + Domain)
}

// maxHosts bounds the hosts of a secret: each has a digit of its own.
const maxHosts = 9

// IsInside reports whether a name is one of those that only a sandbox has.
func IsInside(h allowlist.Host) bool {
	return h == Domain || strings.HasSuffix(string(h), "."+Domain)
}

// Check refuses secrets that are not told apart by their names inside. Errors: Invalid.
func Check(all []Secret) error {
	taken := map[allowlist.Host]string{}
	for _, s := range all {
		if len(s.Hosts) > maxHosts {
			return errdefs.New(errdefs.Invalid, "secret %s: more than %d hosts", s.Name, maxHosts)
		}
		for i := range s.Hosts {
			if other, twice := taken[s.Inside(i)]; twice {
				return errdefs.New(errdefs.Invalid, "secrets %s and %s: both would be %s inside; rename one, as in NAME=env:%s@HOST", other, s.Name, s.Inside(i), s.Source.Text)
			}
			taken[s.Inside(i)] = s.Name
		}
	}
	return nil
}

// Rules returns the rules that allow a program inside the addresses of secrets.
func Rules(all []Secret) []allowlist.Rule {
	var rules []allowlist.Rule
	for _, s := range all {
		for i := range s.Hosts {
			rules = append(rules, allowlist.Rule{Host: s.Inside(i), Port: Port})
		}
	}
	return rules
}

// IsLocal reports whether the target is a port of this host's loopback.
func (t Target) IsLocal() bool { return t.Host == allowlist.Localhost }

// Guarding returns the secret that is for a host, and the host's name inside. Nothing else leads
// from the sandbox to such a host, or a program could send there with a key of its own. Of
// localhost, that is about the port alone.
func Guarding(all []Secret, h allowlist.Host, port uint16) (s Secret, inside allowlist.Host, guarded bool) {
	for _, s := range all {
		for i, t := range s.Hosts {
			if t.Host == h && (!t.IsLocal() || t.Port == port) {
				return s, s.Inside(i), true
			}
		}
	}
	return Secret{}, "", false
}

func invalid(text, why string) error {
	return errdefs.New(errdefs.Invalid, "%s: %s", vpath.Quote(text), why)
}
