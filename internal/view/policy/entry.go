package policy

import "github.com/agentfense/agentfense/internal/lib/vpath"

// EntryOnly returns the path that the rule means without what is below it, and
// whether it is tied to the root. It is not ok for patterns of another kind, and
// for a rule that says none: that holds for all below.
func (r Rule) EntryOnly() (path vpath.Path, anchored, ok bool) {
	reading, err := read(r)
	if err != nil || reading.kind != File || r.Permission == None {
		return "", false, false
	}
	path, err = vpath.Parse(r.Pattern)
	return path, reading.alternatives[0].anchored, err == nil && !path.IsRoot()
}
