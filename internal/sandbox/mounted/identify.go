package mounted

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Identify gives a mount in which something can be written the identity of its source. It
// refuses it if it and one of the others, which come before it, would have two deltas of one
// directory. Errors: Invalid; those of ResolveSource.
func Identify(h *record.Home, m *record.Mount, others []record.Mount) error {
	if !m.IsWritable() {
		return nil
	}
	for _, o := range others {
		if o.HasDelta() && (safefs.IsBelow(string(m.Source), string(o.Source)) || safefs.IsBelow(string(o.Source), string(m.Source))) {
			return errdefs.New(errdefs.Invalid, "it overlaps with %s, and two mounts with changes of the same directory cannot be applied apart: mount the outer one, or one of them with ro", o.Source)
		}
	}
	source, err := h.ResolveSource(string(m.Source))
	if err != nil {
		return err
	}
	m.Dev, m.Ino, m.Born = source.Dev, source.Ino, source.Born
	return nil
}
