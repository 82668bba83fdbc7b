package layer

import (
	"os"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// OpenDeltaDirs opens what the layers above the source have of the directory
// p, the topmost first. A name in them is as it is stored, see
// docs/adr/0002-delta-format.md. The handles are good for opening what lies
// beneath, and the caller's to close. Errors: Internal.
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
