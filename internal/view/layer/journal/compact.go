package journal

import (
	"iter"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// compact replaces the log by one with the records of t only, and removes the contents that no
// record names any more. t was read while nothing was appended.
func (j *Journal) compact(t *table) error {
	drops := len(j.below) > 0 // else a dropped path needs no record
	if err := j.replace(t, maps.Keys(t.own), maps.Keys(t.ownInos), drops); err != nil {
		return err
	}
	files := map[string]bool{}
	for p := range t.own {
		files[t.bases[p].content] = true
	}
	return j.removeContents(files)
}

// replace replaces the log by one with the records of t for the paths and the backing files. With
// drops, what t does not have is recorded as dropped. The caller holds mu, or is the only user.
func (j *Journal) replace(t *table, paths iter.Seq[vpath.Path], inos iter.Seq[uint64], drops bool) error {
	temp := j.o.Temp()
	fd, err := openFile(j.o.Work, temp, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	w := logWriter{fd: fd, b: []byte(logHeader), homes: j.homesLocked()}
	used := t.usedContents(paths)
	kept := make(map[sha256Sum]Span, len(used))
	for sum, at := range used {
		kept[sum] = Span{segment: j.segment + 1, off: w.size + int64(len(w.b)), len: at.len}
		w.copy(at)
	}
	for p := range paths {
		if base, ok := t.bases[p]; ok {
			w.add(BaseRecord(p, base))
		} else if drops {
			w.add(DropRecord(p))
		}
	}
	for ino := range inos {
		if alias, ok := t.aliases[ino]; ok {
			w.add(AliasRecord(ino, alias))
		} else if drops {
			w.add(UnaliasRecord(ino))
		}
	}
	w.flush(0)
	if err = w.close(); err == nil {
		err = unix.Fdatasync(fd)
	}
	if err == nil {
		err = unix.Renameat(j.o.Work, temp, j.o.Home, logName)
	}
	if err != nil {
		unix.Close(fd)
		_ = safefs.Unlink(j.o.Work, temp)
		return err
	}
	unix.Close(j.fd)
	j.segment++
	j.fd, j.size, j.fileEnd, j.settled = fd, w.size, w.size, 0
	j.synced.Store(w.size)
	t.end, t.endsLine, t.segment, t.headless = w.size, true, j.segment, false
	maps.Copy(t.contents, kept)
	maps.DeleteFunc(t.contents, func(_ sha256Sum, at Span) bool { return at.segment == j.segment-1 })
	return nil
}

// logWriter writes a new log. Its methods do nothing after an error, which close returns.
type logWriter struct {
	fd    int
	b     []byte // not written yet
	size  int64
	homes map[int]int // of the segments that are read
	logs  map[int]int // those of homes that are open
	err   error
}

// rewriteBytes is the size of the writes of a new log.
const rewriteBytes = 1 << 20

func (w *logWriter) add(r Record) {
	w.b = appendRecord(w.b, r)
	w.flush(rewriteBytes)
}

// copy writes a line of another log.
func (w *logWriter) copy(at Span) {
	if w.err != nil {
		return
	}
	log, ok := w.logs[at.segment]
	if !ok {
		if log, w.err = openFile(w.homes[at.segment], logName, unix.O_RDONLY, 0); w.err != nil {
			return
		}
		if w.logs == nil {
			w.logs = map[int]int{}
		}
		w.logs[at.segment] = log
	}
	var line []byte
	if line, w.err = safefs.ReadRange(log, at.off, at.len); w.err == nil {
		w.b = append(w.b, line...)
		w.flush(rewriteBytes)
	}
}

func (w *logWriter) flush(atLeast int) {
	if w.err == nil && len(w.b) >= atLeast {
		w.err = safefs.WriteAll(w.fd, w.b, w.size)
		w.size += int64(len(w.b))
		w.b = w.b[:0]
	}
}

func (w *logWriter) close() error {
	for _, log := range w.logs {
		unix.Close(log)
	}
	return w.err
}

// homesLocked returns the directories of all segments by their ids.
func (j *Journal) homesLocked() map[int]int {
	homes := map[int]int{}
	for _, s := range j.segmentsLocked() {
		homes[s.id] = s.home
	}
	return homes
}

// removeContents removes the files in base/ that are not among those used.
func (j *Journal) removeContents(used map[string]bool) error {
	var gone []string
	err := safefs.ReadNames(j.dir, func(name []byte, _ uint32, _ uint64) error {
		if !used[string(name)] {
			gone = append(gone, string(name))
		}
		return nil
	})
	for _, name := range gone {
		if err == nil {
			err = safefs.Unlink(j.dir, name)
		}
	}
	return err
}

// ContentBytes returns the size of the contents that the journal had at Open, on disk, with
// those of the segments below.
func (j *Journal) ContentBytes() (int64, error) {
	j.handles.RLock()
	defer j.handles.RUnlock()
	j.mu.Lock()
	sum := j.inlineBytes
	j.mu.Unlock()
	for _, home := range j.homes() {
		n, err := ContentBytesIn(home)
		sum += n
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// ContentBytesIn returns the size of the contents beside the log of the segment in home, on disk.
func ContentBytesIn(home int) (sum int64, err error) {
	dir, err := openFile(home, contentsName, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == unix.ENOENT {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer unix.Close(dir)
	err = safefs.ReadNames(dir, func(name []byte, _ uint32, _ uint64) error {
		var st unix.Stat_t
		err := unix.Fstatat(dir, string(name), &st, unix.AT_SYMLINK_NOFOLLOW)
		sum += st.Blocks * blockBytes
		return err
	})
	return sum, err
}
