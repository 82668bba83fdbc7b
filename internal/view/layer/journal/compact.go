package layer

import (
	"golang.org/x/sys/unix"
)

// compact rewrites the log with what t holds and removes contents that no
// record names any more.
func (j *journal) compact(t *table, used map[sha256Sum]span) error {
	temp := j.s.temp()
	fd, err := openat2(j.s.work, temp, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	size, err := j.rewrite(fd, t, used)
	if err == nil {
		err = unix.Fdatasync(fd)
	}
	if err == nil {
		err = unix.Renameat(j.s.work, temp, j.s.home, journalName)
	}
	if err != nil {
		unix.Close(fd)
		_ = unlinkAt(j.s.work, temp)
		return err
	}
	unix.Close(j.fd)
	j.fd, j.size, j.room, j.logged = fd, size, size, sumSpans(used)
	j.kept = make(map[sha256Sum]struct{}, len(used))
	for sum := range used {
		j.kept[sum] = struct{}{}
	}
	files := map[string]bool{}
	for _, base := range t.bases {
		files[base.content] = true
	}
	return j.removeContents(files)
}

// rewrite writes to fd what t holds and returns its size.
func (j *journal) rewrite(fd int, t *table, used map[sha256Sum]span) (size int64, err error) {
	b := []byte(journalHeader)
	flush := func(atLeast int) {
		if err == nil && len(b) >= atLeast {
			err = writeAll(fd, b, size)
			size += int64(len(b))
			b = b[:0]
		}
	}
	for _, at := range used {
		line, readErr := readRange(j.fd, at)
		if readErr != nil {
			return 0, readErr
		}
		b = append(b, line...)
		flush(rewriteBytes)
	}
	for p, base := range t.bases {
		b = appendRecord(b, baseRecord(p, base))
		flush(rewriteBytes)
	}
	for ino, alias := range t.aliases {
		b = appendRecord(b, record{kind: recordAlias, ino: ino, alias: alias})
		flush(rewriteBytes)
	}
	flush(0)
	return size, err
}

// rewriteBytes is how much of a new log is written at a time.
const rewriteBytes = 1 << 20

// removeContents removes the files in base/ that are not among those used.
func (j *journal) removeContents(used map[string]bool) error {
	var gone []string
	err := readNames(j.dir, func(name []byte, _ uint32, _ uint64) error {
		if !used[string(name)] {
			gone = append(gone, string(name))
		}
		return nil
	})
	for _, name := range gone {
		if err == nil {
			err = unlinkAt(j.dir, name)
		}
	}
	return err
}

// contentBytes returns what the contents take that were there at Open.
func (j *journal) contentBytes() (int64, error) {
	sum := j.logged
	err := readNames(j.dir, func(name []byte, _ uint32, _ uint64) error {
		st, err := statAt(j.dir, string(name))
		sum += st.blocks * blockBytes
		return err
	})
	return sum, err
}
