// Package hostlist reads the hosts that a sandbox with a network of named hosts may reach, as
// people, configurations and clients give them. Package egress/allowlist has the grammar.
package hostlist

import (
	"slices"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Parse returns hosts in the form of record.Record.AllowNet: each once, presets written out.
// Errors: Invalid.
func Parse(texts []string) ([]string, error) { return ParseLimited(texts, nil) }

// ParseLimited is Parse of hosts of which some are intercepted, and have the requests only that
// limits name: HOST[:PORT]=METHOD[,METHOD…] PATH. Errors: Invalid.
func ParseLimited(texts, limits []string) ([]string, error) {
	rules, err := allowlist.Parse(texts)
	if err == nil {
		rules, err = allowlist.LimitTo(rules, limits)
	}
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		if secret.IsInside(r.Host) || r.Covers(secret.Domain) {
			return nil, errdefs.New(errdefs.Invalid, "%s: the names below %s are those of secrets; use a secret (--secret; in the API: secrets)", r.Host, secret.Domain)
		}
	}
	return allowlist.Texts(rules), nil
}

// Intercepts reports whether connections to a host are opened. It is in the form that Parse
// returns.
func Intercepts(host string) bool {
	r, err := allowlist.ParseRule(host)
	return err == nil && r.Intercept
}

// Opened returns hosts, as people give them, of which host is intercepted: a rule for its place
// that does not open connections has no effect where it gets a secret. Errors: Invalid.
func Opened(hosts []string, host string) ([]string, error) {
	rule, err := allowlist.ParseRule(host)
	if err != nil {
		return nil, err
	}
	rule.Intercept = true
	if _, err := allowlist.ParseRule(rule.String()); err != nil {
		return nil, err
	}
	isOpened := false
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(text string) bool {
		r, err := allowlist.ParseRule(text)
		same := err == nil && r.Place() == rule.Place()
		isOpened = isOpened || same && r.Intercept
		return same && !r.Intercept
	})
	if !isOpened {
		hosts = append(hosts, rule.String())
	}
	return hosts, nil
}

// CheckWithin refuses hosts that bounds do not include. Both are as Parse returns them. Errors:
// Denied, naming the first such host; Invalid.
func CheckWithin(hosts, bounds []string) error {
	asked, err := allowlist.Parse(hosts)
	if err != nil {
		return err
	}
	allowed, err := allowlist.Parse(bounds)
	if err != nil {
		return err
	}
	for _, r := range asked {
		if !slices.ContainsFunc(allowed, func(a allowlist.Rule) bool { return a.Includes(r) }) {
			return errdefs.New(errdefs.Denied, "%s: not among the hosts that this server lets sandboxes reach (network.allow in its configuration)", r)
		}
	}
	return nil
}
