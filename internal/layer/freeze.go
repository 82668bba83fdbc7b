package layer

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

// makeTop makes the delta's directory if it is absent: the stack is new, or a
// crash came between the two steps of Freeze.
func (s *Stack) makeTop() error { return makePrivateDir(s.home, "top") }

// lastFrozen returns the highest N of the directories N in frozen, 0 if none.
func lastFrozen(frozen int) int {
	last := 0
	_ = readNames(frozen, func(name []byte, _ uint32, _ uint64) error {
		if n, err := strconv.Atoi(string(name)); err == nil && n > last {
			last = n
		}
		return nil
	})
	return last
}

var _ = vpath.Root
var _ = unix.ENOENT

func (s *Stack) linkFrozenNames(p vpath.Path, st *stat, pl *place) error { return nil }
