package board

import (
	"os"
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

// watcher tells that files of the board change.
type watcher struct {
	news  chan struct{} // closed when the directory is gone; nil if there is only the pause
	pause time.Duration // after which to look anyway
	file  *os.File
}

// watch begins to watch the board.
func (b *Board) watch() *watcher {
	poll := &watcher{pause: pollPause}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return poll
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, b.dir, unix.IN_MODIFY|unix.IN_MOVED_TO|unix.IN_DELETE_SELF|unix.IN_ONLYDIR); err != nil {
		f.Close()
		return poll
	}
	w := &watcher{news: make(chan struct{}, 1), pause: watchPause, file: f}
	go w.listen(b.dir)
	return w
}

// listen reads events until the file is closed or the directory is gone.
func (w *watcher) listen(dir string) {
	defer close(w.news)
	events := make([]byte, 64<<10)
	for {
		if _, err := w.file.Read(events); err != nil {
			return
		}
		select {
		case w.news <- struct{}{}:
		default:
		}
		if _, err := os.Lstat(dir); err != nil {
			return
		}
	}
}

// close ends the watch. The kernel takes a while for that, so nobody waits.
func (w *watcher) close() {
	if w.file != nil {
		go w.file.Close()
	}
}
