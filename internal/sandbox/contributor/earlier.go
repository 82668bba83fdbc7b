package contributor

import (
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Earlier is what a sandbox could see and reach at an earlier time, beside its earlier policies,
// and does not have now. Statements about its changes name it.
type Earlier struct {
	Nets     []string `json:"nets,omitempty"`
	AllowNet []string `json:"allow_net,omitempty"`
	// Secrets have no placeholders and no limits.
	Secrets []hostlist.Secret `json:"secrets,omitempty"`
	Publish []uint16          `json:"publish,omitempty"` // ports inside
	// Mounts have no identity of the source.
	Mounts []mountspec.Mount `json:"mounts,omitempty"`
}

// With returns e with what other has.
func (e Earlier) With(other Earlier) Earlier {
	return Earlier{
		Nets:     union(e.Nets, other.Nets, isEqual),
		AllowNet: union(e.AllowNet, other.AllowNet, isEqual),
		Secrets:  union(e.Secrets, other.Secrets, isSameSecret),
		Publish:  union(e.Publish, other.Publish, isEqual),
		Mounts:   union(e.Mounts, other.Mounts, isSameMount),
	}
}

// Without returns e without what other has.
func (e Earlier) Without(other Earlier) Earlier {
	return Earlier{
		Nets:     minus(e.Nets, other.Nets, isEqual),
		AllowNet: minus(e.AllowNet, other.AllowNet, isEqual),
		Secrets:  minus(e.Secrets, other.Secrets, isSameSecret),
		Publish:  minus(e.Publish, other.Publish, isEqual),
		Mounts:   minus(e.Mounts, other.Mounts, isSameMount),
	}
}

// Size returns how many hosts, secrets, ports and mounts there are.
func (e Earlier) Size() int { return len(e.AllowNet) + len(e.Secrets) + len(e.Publish) + len(e.Mounts) }

// Clone returns a copy that shares nothing.
func (e Earlier) Clone() Earlier {
	return Earlier{slices.Clone(e.Nets), slices.Clone(e.AllowNet), hostlist.CloneSecrets(e.Secrets), slices.Clone(e.Publish), CloneMounts(e.Mounts)}
}

func isEqual[T comparable](a, b T) bool { return a == b }

func isSameRules(a, b []policy.Rule) bool { return slices.Equal(a, b) }

func isSameSecret(a, b hostlist.Secret) bool {
	return a.Text == b.Text && slices.Equal(a.Allow, b.Allow)
}

// isSameMount reports whether mounts show the same, and showed it in the same ways.
func isSameMount(a, b mountspec.Mount) bool {
	return a.Source == b.Source && a.Target == b.Target && a.Name == b.Name && a.Mode == b.Mode &&
		slices.Equal(a.Rules, b.Rules) && slices.EqualFunc(a.EarlierRules, b.EarlierRules, isSameRules)
}

// union returns what the first list has, and then what only the second has.
func union[T any](first, second []T, same func(a, b T) bool) []T {
	return append(slices.Clone(first), minus(second, first, same)...)
}

// minus returns what the first list has and the second lacks, nil for nothing. It has nothing
// twice.
func minus[T any](first, second []T, same func(a, b T) bool) []T {
	var left []T
	for _, item := range first {
		isIt := func(has T) bool { return same(has, item) }
		if !slices.ContainsFunc(second, isIt) && !slices.ContainsFunc(left, isIt) {
			left = append(left, item)
		}
	}
	return left
}
