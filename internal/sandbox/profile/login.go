package profile

import (
	"errors"
	"net/url"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
	"github.com/agentfense/agentfense/internal/sandbox/login"
)

// readLogin reads logins: paths of files, or mappings. A file that is named again has its last
// login alone.
func (r *reader) readLogin(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return r.At(n.Line, "login is a list, not %s", yamlfile.Shape(n))
	}
	for _, item := range n.Content {
		var l login.Spec
		if item.Kind == yaml.MappingNode {
			has, err := r.Mapping(item, "login", r.loginFields(&l))
			if err != nil {
				return err
			}
			if err := checkSpec(has, l); err != nil {
				return r.At(item.Line, "login: %w", err)
			}
		} else if err := r.text("login", &l.File, checkLogin).Read(item); err != nil {
			return err
		}
		r.profile.Login = append(slices.DeleteFunc(slices.Clone(r.profile.Login), func(was login.Spec) bool { return was.File == l.File }), l)
	}
	return nil
}

// checkSpec refuses a login with a part that is of no use, or without one that it needs.
func checkSpec(has map[string]bool, l login.Spec) error {
	switch {
	case !has["file"] || !has["secret"] || !has["token"]:
		return errdefs.New(errdefs.Invalid, "want the file, the secret that has its token, and the key of the token; a login that is readable inside is the path alone")
	case has["renew"] && (l.Renew.URL == "" || l.Renew.Client == "" || l.Renew.Refresh == "" || l.Renew.Expires == ""):
		return errdefs.New(errdefs.Invalid, "renew: want url, client, refresh and expires")
	}
	return nil
}

// loginFields are the keys of a login.
func (r *reader) loginFields(l *login.Spec) []yamlfile.Field {
	return []yamlfile.Field{
		r.text("file", &l.File, checkLogin),
		r.text("secret", &l.Secret, checkVariable),
		r.text("token", &l.Token, jsonkeys.CheckOne),
		{Key: "set", Read: func(n *yaml.Node) error {
			var set []Variable
			err := r.readSet(n, &set)
			for _, v := range set {
				err = errors.Join(err, jsonkeys.CheckOne(v.Value))
				l.Set = append(l.Set, login.Variable{Name: v.Name, Key: v.Value})
			}
			if err != nil {
				return r.At(n.Line, "set: %w", err)
			}
			return nil
		}},
		{Key: "renew", Read: func(n *yaml.Node) error {
			_, err := r.Mapping(n, "renew", r.renewFields(&l.Renew))
			return err
		}},
	}
}

// renewFields are the keys of a renewal.
func (r *reader) renewFields(to *login.Renewal) []yamlfile.Field {
	return []yamlfile.Field{
		r.text("url", &to.URL, checkProvider),
		r.text("client", &to.Client, checkArg),
		r.text("client_key", &to.ClientKey, jsonkeys.CheckOne),
		r.text("refresh", &to.Refresh, jsonkeys.CheckOne),
		r.text("expires", &to.Expires, jsonkeys.CheckOne),
		r.text("scope", &to.Scope, jsonkeys.CheckOne),
		r.texts("locks", &to.Locks, checkLogin),
		r.text("write_lock", &to.WriteLock, checkLogin),
	}
}

// checkProvider refuses what is no address to which a token may be sent.
func checkProvider(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errdefs.New(errdefs.Invalid, "%s: want an address such as https://auth.example.com/oauth/token", vpath.Quote(text))
	}
	return nil
}
