package hostlist

import (
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// ParseLimits returns limits of a network in the form of record.Record.NetLimits. Each text is
// NAME=VALUE[,NAME=VALUE…]; no name may be repeated. Errors: Invalid.
func ParseLimits(texts ...string) (string, error) {
	if len(texts) == 0 {
		return "", nil
	}
	set, err := quota.ParseNetwork(texts...)
	return set.String(), err
}

// LimitNames are the names of the limits of a network.
func LimitNames() []string { return quota.NetworkNames() }

// LimitsWithin returns limits that are not above bounds: of a limit that both have, the lower one.
// Both are as ParseLimits returns them.
func LimitsWithin(limits, bounds string) (string, error) {
	return combine(limits, bounds, quota.Set.Within)
}

// LimitsOr returns limits, and those of others of which there is none. Both are as ParseLimits
// returns them.
func LimitsOr(limits, others string) (string, error) { return combine(limits, others, quota.Set.Or) }

func combine(a, b string, join func(a, b quota.Set) quota.Set) (string, error) {
	first, err := Limits(a)
	if err != nil {
		return "", err
	}
	second, err := Limits(b)
	return join(first, second).String(), err
}

// Limits reads what ParseLimits returns. Errors: Invalid.
func Limits(limits string) (quota.Set, error) {
	if limits == "" {
		return nil, nil
	}
	return quota.ParseNetwork(limits)
}

// CheckLimits refuses limits that ParseLimits does not return. Errors: Precondition.
func CheckLimits(limits string) error {
	set, err := Limits(limits)
	if err != nil || set.String() != limits {
		return errdefs.New(errdefs.Precondition, "net_limits %q are malformed", limits)
	}
	return nil
}
