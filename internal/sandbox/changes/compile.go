package changes

import (
	"slices"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// recent has the policies that this process compiled last: a command opens the changes of its
// sandbox, and of each mount, several times.
var recent struct {
	mu   sync.Mutex
	all  [8]compiled
	next int
}

type compiled struct {
	rules    []policy.Rule
	reserved []vpath.Path
	policy   *policy.Policy
}

// compile compiles rules with reserved paths. A policy is immutable, so that several may use one.
func compile(rules []policy.Rule, reserved []vpath.Path) (*policy.Policy, error) {
	if p := findCompiled(rules, reserved); p != nil {
		return p, nil
	}
	p, err := policy.Compile(rules, policy.Options{Reserved: reserved})
	if err != nil {
		return nil, err
	}
	recent.mu.Lock()
	defer recent.mu.Unlock()
	recent.all[recent.next] = compiled{slices.Clone(rules), slices.Clone(reserved), p}
	recent.next = (recent.next + 1) % len(recent.all)
	return p, nil
}

func findCompiled(rules []policy.Rule, reserved []vpath.Path) *policy.Policy {
	recent.mu.Lock()
	defer recent.mu.Unlock()
	for _, c := range recent.all {
		if c.policy != nil && slices.Equal(c.rules, rules) && slices.Equal(c.reserved, reserved) {
			return c.policy
		}
	}
	return nil
}
