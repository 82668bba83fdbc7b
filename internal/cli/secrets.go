package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
)

// namedSecrets reads --secret and --secret-allow. Commands have the variables env. Errors: Invalid.
func (o *sandboxOptions) namedSecrets(env []string) ([]secret.Secret, error) {
	var all []secret.Secret
	for _, text := range o.Secrets {
		if secret.IsName(text) { // of a server
			continue
		}
		s, err := secret.Parse(text)
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "--secret %w", err)
		}
		if path, key := s.Source.File(); path != "" {
			if path, err = filepath.Abs(path); err == nil && key != "" {
				err = jsonkeys.CheckOne(key)
			}
			if err != nil {
				return nil, errdefs.New(errdefs.Invalid, "--secret %s: %w", s.Name, err)
			}
			s.Source = s.Source.At(path)
		}
		if slices.ContainsFunc(env, func(v string) bool { name, _, _ := strings.Cut(v, "="); return name == s.Name }) {
			return nil, errdefs.New(errdefs.Invalid, "--secret %[1]s: not with --env %[1]s, which would show commands the value", s.Name)
		}
		all = append(all, s)
	}
	for _, text := range o.Limited {
		name, limit, err := secret.ParseLimit(text)
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "--secret-allow %w", err)
		}
		i := slices.IndexFunc(all, func(s secret.Secret) bool { return s.Name == name })
		if i < 0 {
			return nil, o.noSecret("secret-allow", name)
		}
		all[i].Limits = append(all[i].Limits, limit)
	}
	if err := o.limitSecrets(all); err != nil {
		return nil, err
	}
	return all, secret.Check(all)
}

// noSecret refuses a flag that is about a secret which no --secret gives with its host.
func (o *sandboxOptions) noSecret(flag, name string) error {
	if slices.Contains(o.Secrets, name) {
		return errdefs.New(errdefs.Invalid, "--%[1]s %[2]s: works with --secret %[2]s@HOST only; the operator of a server limits its secrets", flag, name)
	}
	return errdefs.New(errdefs.Invalid, "--%[1]s %[2]s: give --secret %[2]s@HOST too", flag, name)
}

// limitSecrets adds what --secret-limit says. Errors: Invalid.
func (o *sandboxOptions) limitSecrets(all []secret.Secret) error {
	given := map[string][]string{}
	for _, text := range o.SecretLimits {
		name, set, err := secret.ParseQuota(text)
		if err != nil {
			return errdefs.New(errdefs.Invalid, "--secret-limit %w", err)
		}
		i := slices.IndexFunc(all, func(s secret.Secret) bool { return s.Name == name })
		if i < 0 {
			return o.noSecret("secret-limit", name)
		}
		given[name] = append(given[name], set.String())
		if all[i].Quota, err = quota.ParseSecret(given[name]...); err != nil {
			return errdefs.New(errdefs.Invalid, "--secret-limit %s: %w", name, err)
		}
	}
	return nil
}

// serverSecrets are the secrets that are named alone: those of a server.
func (o *sandboxOptions) serverSecrets() []string {
	var names []string
	for _, text := range o.Secrets {
		if secret.IsName(text) {
			names = append(names, text)
		}
	}
	return names
}

// secrets is what the flags ask for, which are checked elsewhere.
func (o *sandboxOptions) secrets(env []string) []hostlist.Secret {
	all, _ := o.namedSecrets(env) // checkSecrets has the error
	var list []hostlist.Secret
	for _, s := range all {
		stored := hostlist.Secret{Text: s.String(), Limits: s.Quota.String()}
		for _, l := range s.Limits {
			stored.Allow = append(stored.Allow, l.String())
		}
		list = append(list, stored)
	}
	return list
}

// checkSecrets refuses secrets that are malformed or do not go with the other flags.
func (o *sandboxOptions) checkSecrets(env []string) error {
	_, err := o.namedSecrets(env)
	switch {
	case err != nil:
		return err
	case len(o.Secrets) > 0 && o.Net != "none":
		return errdefs.New(errdefs.Invalid, "--secret: not with --net %s, by which commands reach hosts directly", o.Net)
	}
	return nil
}

// warnOf tells of an error that does not keep a command from running.
func (e *env) warnOf(err error) { e.say("%v", err) }

// secretText says what a secret is, and where commands reach its first host.
func secretText(stored hostlist.Secret) string {
	s, err := secret.Parse(stored.Text)
	if err != nil {
		return vpath.Escape(stored.Text)
	}
	hosts := make([]string, len(s.Hosts))
	for i, t := range s.Hosts {
		hosts[i] = t.String() + " as http://" + string(s.Inside(i))
	}
	text := s.Name + " of " + vpath.Escape(s.Source.String()) + " for " + strings.Join(hosts, ", ")
	if len(stored.Allow) > 0 {
		text += "; allows " + vpath.Escape(strings.Join(stored.Allow, "; "))
	}
	if stored.Limits != "" {
		text += "; limits " + vpath.Escape(stored.Limits)
	}
	return text
}
