package journal

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// Next is an empty segment that Freeze can put above the present one.
type Next struct{ home, fd, dir int }

// Prepare makes an empty segment in the directory home. Either Freeze or Abandon ends it. It needs
// no record to be durable.
func Prepare(home int) (*Next, error) {
	fd, dir, err := openSegment(home)
	if err != nil {
		return nil, err
	}
	n := &Next{home, fd, dir}
	if err := safefs.WriteAll(fd, []byte(logHeader), 0); err != nil {
		n.Abandon()
		return nil, err
	}
	return n, nil
}

// Abandon closes the segment.
func (n *Next) Abandon() {
	unix.Close(n.fd)
	unix.Close(n.dir)
}

// Freeze ends the present segment and goes on with n, in constant time. frozen is a handle on the
// present directory, which keeps its log; the owner closes it after Close, Merge or Clear.
func (j *Journal) Freeze(n *Next, frozen int) error {
	defer j.lockAll()()
	if err := j.writeDeferred(); err != nil {
		return err
	}
	_ = unix.Ftruncate(j.fd, j.size) // cuts the zeros; they do no harm
	unix.Close(j.fd)
	unix.Close(j.dir)
	j.below = append(slices.Clip(j.below), segment{j.segment, frozen})
	j.segment++
	j.o.Home, j.fd, j.dir = n.home, n.fd, n.dir
	j.size = int64(len(logHeader))
	j.fileEnd, j.settled = j.size, 0
	j.synced.Store(0)
	j.kept = map[sha256Sum]struct{}{}
	return nil
}

// Merge copies what the segments below say into the log, durably. When they do not count any more,
// the owner calls ForgetBelow; a crash in between does no harm. Contents in base/ become names of
// the same files where the file system has links.
func (j *Journal) Merge() error {
	defer j.lockAll()()
	if err := j.writeDeferred(); err != nil {
		return err
	}
	t, err := readAll(j.segmentsLocked())
	if err != nil {
		return err
	}
	for p, b := range t.bases {
		t.own[p] = struct{}{}
		if err := j.bringContent(b.content); err != nil {
			return err
		}
	}
	for ino := range t.aliases {
		t.ownInos[ino] = struct{}{}
	}
	if err := j.replace(t, maps.Keys(t.own), maps.Keys(t.ownInos), true); err != nil {
		return err
	}
	j.keep(t)
	return nil
}

// bringContent links a file in base/ of the segments below into the journal's own.
func (j *Journal) bringContent(name string) error {
	var st unix.Stat_t
	if name == "" || name == inline || unix.Fstatat(j.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return nil
	}
	for _, s := range j.below {
		err := unix.Linkat(s.home, contentsName+"/"+name, j.dir, name, 0)
		switch err {
		case nil, unix.EEXIST:
			return nil
		case unix.ENOENT:
			continue
		}
		return j.copyContent(s.home, name)
	}
	return nil // it was lost: the record stays without a content
}

// copyContent is bringContent where a file cannot have another name.
func (j *Journal) copyContent(home int, name string) error {
	from, err := openFile(home, contentsName+"/"+name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	content, err := safefs.ReadRange(from, 0, ContentMax+1)
	if err != nil || len(content) > ContentMax { // the content of a longer file is only shared
		return err
	}
	return j.store(name, func(fd int) error { return safefs.WriteAll(fd, content, 0) })
}

// ForgetBelow forgets the segments below, after Merge.
func (j *Journal) ForgetBelow() {
	defer j.lockAll()()
	j.below = nil
}
