package hostlist

import (
	"net"
	"slices"
	"strconv"

	"github.com/agentfense/agentfense/internal/confine/egress/secret"
)

// Secret is what the record of a sandbox has of a secret, which is never its value.
type Secret struct {
	// Text says where the value is from and which hosts get it, in the form of secret.Secret of
	// package egress/secret.
	Text string `json:"text"`
	// Placeholder is what commands see in place of the value.
	Placeholder string `json:"placeholder"`
	// Allow are the requests that may be sent, in the form of allowlist.Limit; none: all.
	Allow []string `json:"allow,omitempty"`
	// Limits say how much of it may be used, in the form of quota.Set; "": anything.
	Limits string `json:"limits,omitempty"`
}

// Target returns the name of the variable inside, and the hosts that get the value, HOST:PORT.
// Errors: Invalid.
func (s Secret) Target() (name string, hosts []string, err error) {
	parsed, err := secret.Parse(s.Text)
	if err != nil {
		return "", nil, err
	}
	for _, h := range parsed.Hosts {
		hosts = append(hosts, net.JoinHostPort(string(h.Host), strconv.Itoa(int(h.Port))))
	}
	return parsed.Name, hosts, nil
}

// CloneSecrets returns a copy that shares nothing.
func CloneSecrets(all []Secret) []Secret {
	c := slices.Clone(all)
	for i := range c {
		c[i].Allow = slices.Clone(c[i].Allow)
	}
	return c
}

// CheckSecret refuses a secret of a variable for a host, and the requests that may be sent with it,
// METHOD[,METHOD…] PATH, if one of them is malformed. Errors: Invalid.
func CheckSecret(name, host string, requests []string) error {
	if _, err := secret.Parse(name + "@" + host); err != nil {
		return err
	}
	for _, request := range requests {
		if _, _, err := secret.ParseLimit(name + "=" + request); err != nil {
			return err
		}
	}
	return nil
}

// InsideRules returns the rules that allow the addresses inside of a secret for a number of hosts,
// in the form that the audit log has.
func InsideRules(name string, hosts int) []string {
	var texts []string
	for _, r := range secret.Rules([]secret.Secret{{Name: name, Hosts: make([]secret.Target, hosts)}}) {
		texts = append(texts, r.String())
	}
	return texts
}

// SecretURL returns the address inside of the first host of the secret with the name.
func SecretURL(name string) string { return "http://" + string(secret.Secret{Name: name}.Inside(0)) }
