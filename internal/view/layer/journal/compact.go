package journal

import (
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// compact replaces the log by one with the records of t only, and removes the
// contents that no record names any more.
func (j *Journal) compact(t *table, used map[sha256Sum]Span) error {
	temp := j.o.Temp()
	fd, err := openFile(j.o.Work, temp, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	size, err := j.rewrite(fd, t, used)
	if err == nil {
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
	j.fd, j.size, j.fileEnd, j.inlineBytes = fd, size, size, sumSpans(used)
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

// rewrite writes the records of t to fd and returns their size.
func (j *Journal) rewrite(fd int, t *table, used map[sha256Sum]Span) (size int64, err error) {
	b := []byte(logHeader)
	flush := func(atLeast int) {
		if err == nil && len(b) >= atLeast {
			err = safefs.WriteAll(fd, b, size)
			size += int64(len(b))
			b = b[:0]
		}
	}
	for _, at := range used {
		line, readErr := safefs.ReadRange(j.fd, at.off, at.len)
		if readErr != nil {
			return 0, readErr
		}
		b = append(b, line...)
		flush(rewriteBytes)
	}
	for p, base := range t.bases {
		b = appendRecord(b, BaseRecord(p, base))
		flush(rewriteBytes)
	}
	for ino, alias := range t.aliases {
		b = appendRecord(b, AliasRecord(ino, alias))
		flush(rewriteBytes)
	}
	flush(0)
	return size, err
}

// rewriteBytes is the size of the writes of a new log.
const rewriteBytes = 1 << 20

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

// ContentBytes returns the size of the contents that the journal had at Open, on
// disk.
func (j *Journal) ContentBytes() (int64, error) {
	sum := j.inlineBytes
	err := safefs.ReadNames(j.dir, func(name []byte, _ uint32, _ uint64) error {
		var st unix.Stat_t
		err := unix.Fstatat(j.dir, string(name), &st, unix.AT_SYMLINK_NOFOLLOW)
		sum += st.Blocks * blockBytes
		return err
	})
	return sum, err
}
