package layer

import "github.com/agentfense/agentfense/internal/lib/vpath"

// Measure returns what the stack stores. With a quota of bytes it returns the quota's
// counts. Otherwise it visits every file of the deltas, and names cannot change meanwhile.
// Errors: Internal.
func (s *Stack) Measure() (Usage, error) {
	if s.quota.limitsBytes() {
		return s.Statfs(), nil
	}
	s.ns.RLock()
	defer s.ns.RUnlock()
	counted := quota{ledger: &ledger{files: map[uint64]int64{}}}
	for _, l := range s.layers[:s.bottom()] {
		if err := walkNames(l.root, counted.found); err != nil {
			return Usage{}, wrap("measure", vpath.Root, err)
		}
	}
	contents, err := s.journal.ContentBytes()
	return Usage{Bytes: counted.bytes + contents, Inodes: counted.count, Quota: s.quota.limit}, wrap("measure", vpath.Root, err)
}
