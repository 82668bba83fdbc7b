package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// Keep hashes content into b and keeps it: a content of at most InlineMax bytes
// goes into the log, before the record of b, and a longer one into a file named by
// its hash. Errors: EDQUOT.
func (j *Journal) Keep(b *Base, content []byte) error {
	sum := sha256.Sum256(content)
	b.SHA256 = sum[:]
	if len(content) <= InlineMax {
		b.content, b.text = inline, content
		return j.takeContent(int64(len(content)))
	}
	j.handles.RLock()
	defer j.handles.RUnlock()
	b.content = hex.EncodeToString(sum[:])
	var st unix.Stat_t
	err := unix.Fstatat(j.dir, b.content, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Size == int64(len(content)) {
		return nil
	}
	if err := j.o.Quota.Reserve(int64(len(content)) + pageBytes); err != nil {
		return err
	}
	defer j.o.Quota.Release(int64(len(content)) + pageBytes)
	return j.store(b.content, func(fd int) error { return safefs.WriteAll(fd, content, 0) })
}

// takeContent adds n bytes of a content that will be appended to the log.
// Errors: EDQUOT.
func (j *Journal) takeContent(n int64) error {
	if err := j.o.Quota.Reserve(n); err != nil {
		return err
	}
	j.o.Quota.AddContent(n)
	j.o.Quota.Release(n)
	return nil
}

// Share keeps the content of src, which is too long for Keep, by sharing its blocks.
// If the file system cannot do that, b stays without a content.
func (j *Journal) Share(b *Base, src int) error {
	j.handles.RLock()
	defer j.handles.RUnlock()
	name := "shared-" + j.o.Temp()
	for j.hasContent(name) { // an earlier run may have used the name
		name = "shared-" + j.o.Temp()
	}
	err := j.store(name, func(fd int) error { return unix.IoctlFileClone(fd, src) })
	if err == nil {
		b.content = name
	}
	if safefs.CannotClone(err) {
		return nil
	}
	return err
}

// hasContent reports whether base/ of any segment has the name.
func (j *Journal) hasContent(name string) bool {
	for _, home := range j.homes() {
		var st unix.Stat_t
		if unix.Fstatat(home, contentsName+"/"+name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return true
		}
	}
	return false
}

// homes returns the directories of all segments, the highest first.
func (j *Journal) homes() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	var homes []int
	for _, s := range slices.Backward(j.segmentsLocked()) {
		homes = append(homes, s.home)
	}
	return homes
}

// store makes the file name in base/, complete or not at all.
func (j *Journal) store(name string, fill func(fd int) error) error {
	temp := j.o.Temp()
	fd, err := openFile(j.o.Work, temp, unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = fill(fd)
	if err == nil {
		err = unix.Renameat(j.o.Work, temp, j.dir, name)
	}
	if err != nil {
		_ = safefs.Unlink(j.o.Work, temp)
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err == nil {
		j.o.Quota.AddContent(st.Blocks * blockBytes)
	}
	return nil
}

// Content opens the content that was kept for b. The caller closes it. Errors: ENOENT
// if none was kept, EIO if it is damaged.
func (j *Journal) Content(b *Base) (*os.File, error) {
	if b == nil || b.content == "" {
		return nil, unix.ENOENT
	}
	j.handles.RLock()
	defer j.handles.RUnlock()
	if b.content == inline {
		return j.inlineContent(b)
	}
	fd, err := -1, error(unix.ENOENT)
	for _, home := range j.homes() {
		fd, err = openFile(home, contentsName+"/"+b.content, unix.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != unix.ENOENT {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if b.SHA256 != nil {
		sum, err := HashFile(fd)
		if err == nil && string(sum) != string(b.SHA256) {
			err = unix.EIO
		}
		if err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	return os.NewFile(uintptr(fd), "recorded content"), nil
}

// HashFile returns the SHA-256 of the open file fd, of at most ContentMax bytes.
func HashFile(fd int) ([]byte, error) {
	content, err := safefs.ReadRange(fd, 0, ContentMax)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	return sum[:], nil
}

// isContentName reports whether name can be the CONTENT field of a record.
func isContentName(name string) bool {
	return name == inline || len(name) == hex.EncodedLen(sha256.Size) || strings.HasPrefix(name, "shared-")
}

// contentsName is the directory of the contents that are too long for the log.
const contentsName = "base"

const (
	blockBytes = 512  // the unit of st_blocks
	pageBytes  = 4096 // what the length of a file is rounded up to on disk
)
