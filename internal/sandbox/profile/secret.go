package profile

import (
	"net/url"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
)

// Flags are the values of flags that give a sandbox a secret, and the variable with the address
// that the agent uses, "" if it needs none.
type Flags struct {
	Secret   string   // --secret
	Requests []string // --secret-allow
	Variable string   // NAME=VALUE
	Args     []string // of the agent
	Opened   string   // the host of the secret if its connections are opened, else ""
}

// Flags returns how a sandbox gets the secret. baseURL is the caller's value of the variable
// BaseURL, "" for none: the API is there, and it may have other requests. Errors: Invalid for an
// address that cannot be that of an API.
func (s Secret) Flags(baseURL string) (Flags, error) {
	if baseURL == "" {
		f := Flags{Secret: s.Name + "@" + s.Host}
		for _, request := range s.Requests {
			f.Requests = append(f.Requests, s.Name+"="+request)
		}
		if s.Intercept {
			f.Opened, f.Variable = s.Host, s.withoutBaseURL()
			return f, nil
		}
		return s.at(f, s.Path), nil
	}
	host, path, err := parseBaseURL(s.BaseURL, baseURL)
	if err != nil {
		return Flags{}, err
	}
	return s.at(Flags{Secret: s.Name + "@" + host}, path), nil
}

// at adds the address of the secret's host in a sandbox, with a path, to f.
func (s Secret) at(f Flags, path string) Flags {
	url := hostlist.SecretURL(s.Name) + path
	if s.BaseURL != "" {
		f.Variable = s.BaseURL + "=" + url
	}
	f.Args = s.ArgsAt(url)
	return f
}

// withoutBaseURL keeps the agent from taking an address from its variable, which the secret would
// set.
func (s Secret) withoutBaseURL() string {
	if s.BaseURL == "" {
		return ""
	}
	return s.BaseURL + "="
}

// ArgsAt are the Args for an address.
func (s Secret) ArgsAt(url string) []string {
	args := slices.Clone(s.Args)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "{url}", url)
	}
	return args
}

// HostOf returns the host of the caller's value of the variable BaseURL, in the form of
// --allow-net. Errors: Invalid.
func (s Secret) HostOf(baseURL string) (string, error) {
	host, _, err := parseBaseURL(s.BaseURL, baseURL)
	return host, err
}

// IsLocal reports whether an address is one of this host.
func (s Secret) IsLocal(baseURL string) bool {
	host, _, err := parseBaseURL(s.BaseURL, baseURL)
	return err == nil && strings.HasPrefix(host, "localhost:")
}

// parseBaseURL returns the host of an address, in the form of --allow-net, and its path.
func parseBaseURL(variable, text string) (host, path string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || strings.Contains(u.Hostname(), "*") || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", "", errdefs.New(errdefs.Invalid, "%s %s: want an address such as https://api.example.com/v1", variable, vpath.Quote(text))
	}
	name, port := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), u.Port()
	isLocal := name == "localhost" || name == "127.0.0.1" || name == "::1"
	switch {
	case u.Scheme == "http" && isLocal:
		name = "localhost"
		if port == "" {
			port = "80"
		}
	case u.Scheme == "https" && !isLocal:
		if port == "" {
			port = "443"
		}
	default:
		return "", "", errdefs.New(errdefs.Invalid, "%s %s: want https, or http://localhost:PORT", variable, vpath.Quote(text))
	}
	return name + ":" + port, strings.TrimSuffix(u.EscapedPath(), "/"), nil
}
