package layer

import (
	"crypto/sha256"
	"encoding/hex"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

// keep hashes content and sees that it is kept: a short one goes into the log
// with the record that b is for, a longer one into a file under its hash.
// Errors: EDQUOT.
func (j *journal) keep(b *Base, content []byte) error {
	sum := sha256.Sum256(content)
	b.SHA256 = sum[:]
	if len(content) <= inLogMax {
		b.content, b.text = inLog, content
		return j.s.quota.takeContent(int64(len(content)))
	}
	b.content = hex.EncodeToString(sum[:])
	st, err := statAt(j.dir, b.content)
	if err == nil && st.size == int64(len(content)) {
		return nil
	}
	if err := j.s.quota.reserve(int64(len(content)) + pageBytes); err != nil {
		return err
	}
	defer j.s.quota.release(int64(len(content)) + pageBytes)
	return j.store(b.content, func(fd int) error { return writeAll(fd, content, 0) })
}

// share keeps the blocks of a file that is too long to be copied, where the
// file system can; else b stays without a content.
func (j *journal) share(b *Base, src int) error {
	name := "shared-" + j.s.temp()
	for { // names of an earlier run may be taken
		if there, err := exists(j.dir, name); err != nil || !there {
			break
		}
		name = "shared-" + j.s.temp()
	}
	err := j.store(name, func(fd int) error { return unix.IoctlFileClone(fd, src) })
	if err == nil {
		b.content = name
	}
	if cannotClone(err) {
		return nil
	}
	return err
}

// store makes the file name in base/, whole or not at all.
func (j *journal) store(name string, fill func(fd int) error) error {
	temp := j.s.temp()
	fd, err := openat2(j.s.work, temp, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = fill(fd)
	if err == nil {
		err = unix.Renameat(j.s.work, temp, j.dir, name)
	}
	if err != nil {
		_ = unlinkAt(j.s.work, temp)
		return err
	}
	if st, err := statFd(fd); err == nil {
		j.s.quota.addContent(st.blocks * blockBytes)
	}
	return nil
}

// writeAll writes b to fd from the byte at on.
func writeAll(fd int, b []byte, at int64) error {
	for off := 0; off < len(b); {
		n, err := unix.Pwrite(fd, b[off:], at+int64(off))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		off += n
	}
	return nil
}

// keepCovered keeps the content of what p was in the source, which a whiteout
// hides and something new is about to replace.
func (s *Stack) keepCovered(p vpath.Path, v *view) error {
	last := v.parts[len(v.parts)-1]
	if last.origin != Source {
		return nil
	}
	if _, ok := s.covered[p]; ok {
		return nil // else making and removing it for ever would fill the log
	}
	st, err := statAt(last.fd, p.Base())
	if err != nil || !st.isRegular() {
		return nil // gone meanwhile, or nothing to merge with later
	}
	s.covered[p] = struct{}{}
	return s.keepReplaced(p, entry{part: last, stored: p.Base(), st: st}, recordContent)
}

// keepReplaced records e, of the source at p, with its content if it can be
// read.
func (s *Stack) keepReplaced(p vpath.Path, e entry, kind recordKind) error {
	base := baseOf(&e.st)
	if e.st.isRegular() {
		s.addContent(&base, e)
	}
	return s.journal.append(record{kind: kind, path: p, base: base})
}

// addContent adds the content of e to base. One that cannot be read or kept
// costs no more than a later merge.
func (s *Stack) addContent(base *Base, e entry) {
	fd, st, err := s.openEntry(e, false)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	whole := baseOf(&st)
	var content []byte
	if st.size > ContentMax {
		err = s.journal.share(&whole, fd)
	} else {
		content, err = readContent(fd, st.size)
	}
	if err != nil {
		return
	}
	if now, err := statFd(fd); err != nil || !st.unchanged(&now) {
		return
	}
	if st.size <= ContentMax && s.journal.keep(&whole, content) != nil {
		return
	}
	*base = whole
}
