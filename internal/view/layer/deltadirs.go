package layer

import (
	"os"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// OpenDeltaDirs opens the directory p in each layer above the source that has it, the
// topmost first. Names in them are stored names, see docs/adr/0002-delta-format.md. The
// caller closes the handles. Errors: Internal.
func (s *Stack) OpenDeltaDirs(p vpath.Path) ([]*os.File, error) {
	s.ns.RLock()
	defer s.ns.RUnlock()
	var dirs []*os.File
	for _, l := range s.layers[:s.bottom()] {
		fd, err := openDirAt(l.root, nameenc.Path(p))
		if isAbsent(err) {
			continue
		}
		if err != nil {
			for _, dir := range dirs {
				dir.Close()
			}
			return nil, wrap("open delta", p, err)
		}
		dirs = append(dirs, asOS(fd, p.String()))
	}
	return dirs, nil
}
