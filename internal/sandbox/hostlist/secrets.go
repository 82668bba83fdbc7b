package hostlist

import "slices"

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

// CloneSecrets returns a copy that shares nothing.
func CloneSecrets(all []Secret) []Secret {
	c := slices.Clone(all)
	for i := range c {
		c[i].Allow = slices.Clone(c[i].Allow)
	}
	return c
}
