package board

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pollPause is the time between looks at a board that cannot be watched: it is not there yet,
	// or this user has no more inotify instances.
	pollPause = 50 * time.Millisecond
	// watchPause is that of one that is watched.
	watchPause = 5 * time.Second
)

// maxWatched is how many boards a process watches. A user has few inotify instances, 128 by
// default, and supervisors need them too (inotify(7)).
const maxWatched = 48

// watched are the boards that this process watches.
var watched struct {
	mu sync.Mutex
	of map[string]*instance // by directory
}

// instance is an inotify instance. All who wait at a board share it.
type instance struct {
	dir      string
	file     *os.File
	watchers map[*watcher]struct{} // guarded by watched.mu
}

// watcher tells that files of the board change.
type watcher struct {
	news  chan struct{} // closed when the directory is gone; nil if there is only the pause
	pause time.Duration // after which to look anyway
	at    *instance     // nil if there is only the pause
}

// watch begins to watch the board.
func (b *Board) watch() *watcher {
	watched.mu.Lock()
	defer watched.mu.Unlock()
	at := watched.of[b.dir]
	if at == nil && len(watched.of) < maxWatched {
		at = watchLocked(b.dir)
	}
	if at == nil {
		return &watcher{pause: pollPause}
	}
	w := &watcher{news: make(chan struct{}, 1), pause: watchPause, at: at}
	at.watchers[w] = struct{}{}
	return w
}

// watchLocked begins to watch a directory. It returns nil if that is impossible.
func watchLocked(dir string) *instance {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MODIFY|unix.IN_MOVED_TO|unix.IN_DELETE_SELF|unix.IN_ONLYDIR); err != nil {
		f.Close()
		return nil
	}
	at := &instance{dir: dir, file: f, watchers: map[*watcher]struct{}{}}
	if watched.of == nil {
		watched.of = map[string]*instance{}
	}
	watched.of[dir] = at
	go at.listen()
	return at
}

// listen reads events until the file is closed or the directory is gone.
func (i *instance) listen() {
	defer i.end()
	events := make([]byte, 64<<10)
	for {
		if _, err := i.file.Read(events); err != nil {
			return
		}
		i.tell()
		if _, err := os.Lstat(i.dir); err != nil {
			return
		}
	}
}

func (i *instance) tell() {
	watched.mu.Lock()
	defer watched.mu.Unlock()
	for w := range i.watchers {
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
}

func (i *instance) end() {
	watched.mu.Lock()
	i.dropLocked()
	for w := range i.watchers {
		close(w.news)
	}
	clear(i.watchers)
	watched.mu.Unlock()
	i.file.Close()
}

func (i *instance) dropLocked() {
	if watched.of[i.dir] == i {
		delete(watched.of, i.dir)
	}
}

// close ends the watch.
func (w *watcher) close() {
	if w.at == nil {
		return
	}
	watched.mu.Lock()
	defer watched.mu.Unlock()
	delete(w.at.watchers, w)
	if len(w.at.watchers) == 0 {
		w.at.dropLocked()
		go w.at.file.Close() // the kernel takes a while for that, so nobody waits
	}
}
