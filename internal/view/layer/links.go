package layer

import (
	"maps"
	"slices"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// The bounds of what links follows. Beyond them the next call of Stack.Linked finds all links anew.
const (
	maxChangedLinks = 4096
	maxMovedLinks   = 1024 // names in all, when a directory is renamed
)

// links has the names of the files with several names, for Stack.Linked. It may also have names of
// files that had several. Whoever gives such a file a name, or takes or moves one, says so before
// the change, while it holds ns exclusively.
type links struct {
	mu      sync.Mutex
	known   bool // else the others say nothing
	none    bool // no layer had such a file, and no link was made since
	names   map[FileID]map[vpath.Path]struct{}
	files   map[vpath.Path]FileID
	changed map[vpath.Path]struct{} // names whose file may be another one now
}

func (k *links) reset() {
	k.known, k.none = false, false
	k.names, k.files, k.changed = map[FileID]map[vpath.Path]struct{}{}, map[vpath.Path]FileID{}, map[vpath.Path]struct{}{}
}

// linked returns the names of the files with several names.
func (k *links) linked() map[FileID][]vpath.Path {
	linked := map[FileID][]vpath.Path{}
	for id, names := range k.names {
		if len(names) > 1 { // else the other names are orphans
			linked[id] = slices.Collect(maps.Keys(names))
		}
	}
	return linked
}

func (k *links) add(p vpath.Path, id FileID) {
	if k.names[id] == nil {
		k.names[id] = map[vpath.Path]struct{}{}
	}
	k.names[id][p] = struct{}{}
	k.files[p] = id
}

func (k *links) remove(p vpath.Path) {
	id, ok := k.files[p]
	if !ok {
		return
	}
	delete(k.files, p)
	if delete(k.names[id], p); len(k.names[id]) == 0 {
		delete(k.names, id)
	}
}

// touch says that these names may be of other files from now on, which may have several.
func (k *links) touch(paths ...vpath.Path) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.touchLocked(paths...)
}

func (k *links) touchLocked(paths ...vpath.Path) {
	if k.none = false; !k.known {
		return
	}
	for _, p := range paths {
		k.changed[p] = struct{}{}
	}
	if len(k.changed) > maxChangedLinks {
		k.reset()
	}
}

// change is touch, which does nothing if none of the files involved has or had several names.
// linked says that one of them has.
func (k *links) change(linked bool, paths ...vpath.Path) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range paths {
		_, has := k.files[p]
		_, had := k.changed[p]
		linked = linked || has || had
	}
	if linked {
		k.touchLocked(paths...)
	}
}

// moveDirs says that what is below one path moves to the other one, and perhaps the other way.
func (k *links) moveDirs(old, p vpath.Path) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known || len(k.files)+len(k.changed) == 0 {
		return
	}
	if len(k.files)+len(k.changed) > maxMovedLinks {
		k.reset()
		return
	}
	var moved []vpath.Path
	move := func(q vpath.Path) {
		switch {
		case q.Within(old):
			moved = append(moved, q, p+q[len(old):])
		case q.Within(p):
			moved = append(moved, q, old+q[len(p):])
		}
	}
	for q := range k.files {
		move(q)
	}
	for q := range k.changed {
		move(q)
	}
	if len(moved) > 0 {
		k.touchLocked(moved...)
	}
}

// forget says that anything may have changed, but that no file has more names than before.
func (k *links) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known || !k.none {
		k.reset()
	}
}
