package layer

import (
	"bytes"
	"hash/crc32"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// journal is base.log, which is only ever appended to, and base/, the contents
// it names. A line that a crash tore, or that fails its checksum, counts as
// absent: what it recorded then has no base and applying it is a conflict.
type journal struct {
	s   *Stack
	dir int // base/

	mu   sync.Mutex
	fd   int
	size int64
}

const (
	journalName   = "base.log"
	journalHeader = "agentfense-base 1\n"
)

// open reads the log for the numbers shown, compacts it if most of it is
// superseded, and leaves it ready to append.
func (j *journal) open(s *Stack) error {
	j.s, j.fd, j.dir = s, -1, -1
	if s.o.ReadOnly {
		return j.load()
	}
	var err error
	if j.dir, err = s.privateDir("base"); err != nil {
		return err
	}
	if err := j.openLog(); err != nil {
		return err
	}
	return j.load()
}

func (j *journal) openLog() error {
	var err error
	if j.fd, err = openat2(j.s.home, journalName, unix.O_CREAT|unix.O_RDWR, 0o600); err != nil {
		return err
	}
	st, err := statFd(j.fd)
	if err != nil {
		return err
	}
	j.size = st.size
	switch {
	case j.size == 0:
		return j.write([]byte(journalHeader))
	case endsLine(j.fd, j.size):
		return nil
	}
	return j.write([]byte("\n")) // closes the torn line
}

func endsLine(fd int, size int64) bool {
	var last [1]byte
	n, err := unix.Pread(fd, last[:], size-1)
	return err == nil && n == 1 && last[0] == '\n'
}

// load takes from the log what is needed in memory.
func (j *journal) load() error {
	t, err := j.read()
	if err != nil {
		return err
	}
	j.s.inodes.reset(t.aliases)
	_, j.s.rootTouched = t.bases[vpath.Root]
	if j.s.o.ReadOnly || t.lines < 2*t.live()+compactSlack {
		return nil
	}
	return j.compact(t)
}

// compactSlack is how many superseded lines are not worth a rewrite.
const compactSlack = 1024

// table is what the lines of a log add up to.
type table struct {
	bases   map[vpath.Path]Base
	aliases map[uint64]inodeAlias
	lines   int
}

func (t *table) live() int { return len(t.bases) + len(t.aliases) }

// apply adds one record to the table.
func (t *table) apply(r record) {
	t.lines++
	switch r.kind {
	case recordBase:
		t.bases[r.path] = r.base
	case recordContent:
		if b, ok := t.bases[r.path]; ok && b.sameIdentity(&r.base) {
			t.bases[r.path] = r.base
		}
	case recordDrop:
		delete(t.bases, r.path)
	case recordAlias:
		t.aliases[r.ino] = r.alias
	case recordUnalias:
		delete(t.aliases, r.ino)
	}
}

// read reads the whole log. One that is absent is empty. Errors: Unsupported
// for a log of another version.
func (j *journal) read() (*table, error) {
	t := &table{bases: map[vpath.Path]Base{}, aliases: map[uint64]inodeAlias{}}
	fd, err := openat2(j.s.home, journalName, unix.O_RDONLY, 0)
	if err == unix.ENOENT {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	f := asOS(fd, journalName)
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(text, []byte(journalHeader)) {
		if len(text) == 0 || bytes.HasPrefix([]byte(journalHeader), text) {
			return t, nil
		}
		return nil, fault.New(fault.Unsupported, "read %s: not written by this version", journalName)
	}
	for line := range bytes.Lines(text[len(journalHeader):]) {
		if r, ok := parseRecord(line); ok {
			t.apply(r)
		} else {
			t.lines++
		}
	}
	return t, nil
}

func (j *journal) bases() (map[vpath.Path]Base, error) {
	t, err := j.read()
	if err != nil {
		return nil, err
	}
	return t.bases, nil
}

// append adds records to the log, all or none. They are durable after sync.
func (j *journal) append(records ...record) error {
	var b []byte
	for _, r := range records {
		b = appendRecord(b, r)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(b)
}

func (j *journal) write(b []byte) error {
	for n := 0; n < len(b); {
		m, err := unix.Pwrite(j.fd, b[n:], j.size+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			_ = unix.Ftruncate(j.fd, j.size) // else the next line closes over it
			return err
		}
		n += m
	}
	j.size += int64(len(b))
	return nil
}

// clear forgets every record and every content.
func (j *journal) clear() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := unix.Ftruncate(j.fd, int64(len(journalHeader))); err != nil {
		return err
	}
	j.size = int64(len(journalHeader))
	j.s.quota.clearContents()
	return j.removeContents(nil)
}

func (j *journal) sync() error { return unix.Fdatasync(j.fd) }

func (j *journal) close() error {
	if j.dir >= 0 {
		unix.Close(j.dir)
	}
	if j.fd < 0 {
		return nil
	}
	err := unix.Fdatasync(j.fd)
	unix.Close(j.fd)
	j.fd, j.dir = -1, -1
	return err
}

// compact rewrites the log with what t holds and removes contents that no
// record names any more.
func (j *journal) compact(t *table) error {
	b := []byte(journalHeader)
	used := map[string]bool{}
	for p, base := range t.bases {
		b = appendRecord(b, baseRecord(p, base))
		used[base.content] = true
	}
	for ino, alias := range t.aliases {
		b = appendRecord(b, record{kind: recordAlias, ino: ino, alias: alias})
	}
	if err := j.replace(b); err != nil {
		return err
	}
	return j.removeContents(used)
}

// replace puts a whole new log in the old one's place, durably.
func (j *journal) replace(text []byte) error {
	temp := j.s.temp()
	fd, err := openat2(j.s.work, temp, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err = writeAll(fd, text); err == nil {
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
	j.fd, j.size = fd, int64(len(text))
	return nil
}

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

// eachContent calls do for each kept content.
func (j *journal) eachContent(do func(*stat)) error {
	return readNames(j.dir, func(name []byte, _ uint32, _ uint64) error {
		st, err := statAt(j.dir, string(name))
		if err == nil {
			do(&st)
		}
		return err
	})
}

// crcTable is CRC-32C (Castagnoli), which processors compute themselves.
var crcTable = crc32.MakeTable(crc32.Castagnoli)
