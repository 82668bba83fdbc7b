// Package secrets finds the values of a sandbox's secrets for whoever starts it, and hands them
// over to the sandbox's network. A record has no value, and neither has the supervisor.
package secrets

import (
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Of reads the secrets of a record. Errors: Precondition.
func Of(r *record.Record) ([]secret.Secret, error) {
	all, err := parse(r.Secrets)
	if err != nil {
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: %w", r.Name, err)
	}
	return all, nil
}

func parse(stored []hostlist.Secret) ([]secret.Secret, error) {
	var all []secret.Secret
	for _, each := range stored {
		s, err := secret.Parse(each.Text)
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "secret %w", err)
		}
		s.Placeholder = each.Placeholder
		for _, text := range each.Allow {
			l, err := allowlist.ParseRequests(text)
			if err != nil {
				return nil, errdefs.New(errdefs.Invalid, "secret %s: %w", s.Name, err)
			}
			s.Limits = append(s.Limits, l)
		}
		if each.Limits != "" {
			if s.Quota, err = quota.ParseSecret(each.Limits); err != nil {
				return nil, errdefs.New(errdefs.Invalid, "secret %s: %w", s.Name, err)
			}
		}
		all = append(all, s)
	}
	return all, secret.Check(all)
}

// Variables are the variables that commands have because of secrets. A person's own settings come
// before the addresses, and not before the placeholders.
func Variables(r *record.Record) (addresses, placeholders []string, err error) {
	all, err := Of(r)
	for _, s := range all {
		address, placeholder := s.Variables()
		addresses, placeholders = append(addresses, address...), append(placeholders, placeholder)
	}
	return addresses, placeholders, err
}

// Without leaves the variables out of an environment that have the values of a sandbox's secrets.
// Errors: Precondition.
func Without(environ []string, r *record.Record) ([]string, error) {
	all, err := Of(r)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.ContainsFunc(all, func(s secret.Secret) bool {
			return s.Source == secret.Source{Kind: secret.FromVariable, Text: name}
		})
	}), nil
}
