package policy

import "github.com/agentfense/agentfense/internal/lib/vpath"

// DecideNames returns what p permits of one file with several names: the decision on the strictest.
// If its names show different contents, its content is shown by none of them.
func (p *Policy) DecideNames(names []vpath.Path) Decision {
	strictest := p.Decide(names[0])
	differ := false
	for _, name := range names[1:] {
		d := p.Decide(name)
		differ = differ || d.Transform != strictest.Transform
		if d.Permission < strictest.Permission {
			strictest = d
		}
	}
	if differ {
		strictest.Permission = min(strictest.Permission, View)
	}
	return strictest
}
