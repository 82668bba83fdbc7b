package layer

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// A stack's directory is a head: it has the writable delta (top), the log of what paths were
// before, and a symbolic link named below to the highest frozen layer. A frozen layer is a former
// head in the store. It has a link to the layer below it in turn, so that it stands for the whole
// state under it. The link is never followed as one: its target is a name in the store. (A link
// that short is stored in its inode, so that no crash leaves it empty.)

// belowName is the name of the link.
const belowName = "below"

const layerPrefix = "ly_"

// maxBelow bounds how many frozen layers a stack may have.
const maxBelow = 1 << 10

// errLayerGone says that a frozen layer is missing.
var errLayerGone = errors.New("a frozen layer is missing")

func newLayerName() string {
	var b [8]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return layerPrefix + hex.EncodeToString(b[:])
}

// IsLayerName reports whether name can be that of a frozen layer.
func IsLayerName(name string) bool {
	digits, ok := strings.CutPrefix(name, layerPrefix)
	return ok && len(digits) == 16 && strings.Trim(digits, "0123456789abcdef") == ""
}

// Below returns the name of the frozen layer below the head in the directory dir, "" if there is
// none. Errors: Precondition if the link is damaged.
func Below(dir string) (string, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return "", nil
	}
	if err != nil {
		return "", wrap("read layers of", vpath.Root, err)
	}
	defer unix.Close(fd)
	name, err := readBelow(fd)
	return name, wrap("read layers of", vpath.Root, err)
}

func readBelow(home int) (string, error) {
	name, err := readlinkAt(home, belowName)
	switch {
	case err == unix.ENOENT:
		return "", nil
	case err == unix.EINVAL || err == nil && !IsLayerName(name):
		return "", errdefs.New(errdefs.Precondition, "%s: does not name a layer", belowName)
	}
	return name, err
}

// Chain returns the names of the frozen layers below the head in dir, the highest first. Errors:
// Precondition if one is missing.
func Chain(dir, store string) ([]string, error) {
	var names []string
	for {
		name, err := Below(dir)
		if err != nil || name == "" {
			return names, err
		}
		dir = filepath.Join(store, name)
		if _, err := os.Lstat(dir); err != nil || len(names) == maxBelow {
			return names, errdefs.New(errdefs.Precondition, "layer %s: %w", name, errLayerGone)
		}
		names = append(names, name)
	}
}

// openFrozen opens the frozen layers.
func (s *Stack) openFrozen() error {
	name, err := readBelow(s.home)
	if err != nil || name == "" {
		return err
	}
	if s.o.Store == "" {
		return errdefs.New(errdefs.Internal, "no directory for frozen layers")
	}
	store, err := openStore(s.o.Store)
	if err != nil {
		return err
	}
	defer unix.Close(store)
	for n := 0; name != ""; n++ {
		l, err := openLayer(store, name)
		if err == unix.ENOENT || n == maxBelow {
			return errdefs.New(errdefs.Precondition, "layer %s: %w", name, errLayerGone)
		}
		if err != nil {
			return err
		}
		s.layers = append(s.layers, l)
		if name, err = readBelow(l.home); err != nil {
			return err
		}
	}
	return nil
}

func openLayer(store int, name string) (*layer, error) {
	home, err := openDir(store, name)
	if err != nil {
		return nil, err
	}
	root, err := openDir(home, "top")
	if err != nil {
		unix.Close(home)
		return nil, err
	}
	return &layer{root: root, origin: Frozen, name: name, home: home}, nil
}

func openStore(path string) (int, error) {
	if path == "" {
		return -1, errdefs.New(errdefs.Internal, "no directory for frozen layers")
	}
	if err := safefs.MakePrivateDir(unix.AT_FDCWD, path); err != nil {
		return -1, err
	}
	return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// makeHead makes a head with an empty delta as name in the directory dir, above the frozen layer
// below ("": none). The delta's root has the attributes of like, unless that is negative. It
// returns handles on the head and its delta.
func makeHead(dir int, name, below string, like int) (home, fresh int, err error) {
	if err := safefs.MakePrivateDir(dir, name); err != nil {
		return -1, -1, err
	}
	home, err = safefs.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err == nil {
		if below != "" {
			err = unix.Symlinkat(below, home, belowName)
		}
		if err == nil {
			fresh, err = makeTop(home, like)
		}
		if err != nil {
			unix.Close(home)
		}
	}
	if err != nil {
		discardLayer(dir, name)
		return -1, -1, err
	}
	return home, fresh, nil
}

// makeTop makes and opens the delta's directory in home, with the attributes of like, unless that
// is negative.
func makeTop(home, like int) (int, error) {
	if err := safefs.MakePrivateDir(home, "top"); err != nil {
		return -1, err
	}
	fd, err := openDir(home, "top")
	if err != nil || like < 0 {
		return fd, err
	}
	if err := copyAttributes(fd, like); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func copyAttributes(to, from int) error {
	now, err := statFd(to)
	if err != nil {
		return err
	}
	st, err := statFd(from)
	if err != nil {
		return err
	}
	return giveAttributes(to, ".", &now, &st)
}

// exchange exchanges the directory name in store with the head, which is home and has the host
// path dir.
func exchange(store int, name string, home int, dir string) error {
	var named, open unix.Stat_t
	err := unix.Lstat(dir, &named)
	if err == nil {
		err = unix.Fstat(home, &open)
	}
	if err != nil {
		return err
	}
	if named.Dev != open.Dev || named.Ino != open.Ino {
		return unix.ESTALE
	}
	err = unix.Renameat2(store, name, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOPNOTSUPP {
		return errdefs.New(errdefs.Unsupported, "the file system of the state directory cannot exchange two directories, which snapshots and forks need: set AGENTFENSE_HOME to a directory on ext4, xfs, btrfs or tmpfs")
	}
	return err
}

// takeUnfinished moves the directories of unfinished files and of orphans from one head to another.
func takeUnfinished(from, to int) error {
	for _, name := range []string{"work", "orphan"} {
		if err := unix.Renameat2(from, name, to, name, unix.RENAME_NOREPLACE); err != nil && err != unix.ENOENT {
			return err
		}
	}
	return nil
}

func discardLayer(dir int, name string) { _ = safefs.RemoveTreeAt(dir, name) }

// isEmptyDelta reports whether a delta has no entry and hides nothing.
func isEmptyDelta(root int) (bool, error) {
	fd, err := openDirAt(root, nameenc.Path(vpath.Root))
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	names, err := readStored(fd)
	return len(names) == 0, err
}

func hasSameMode(a, b int) (bool, error) {
	x, err := statFd(a)
	if err != nil {
		return false, err
	}
	y, err := statFd(b)
	return x.mode == y.mode, err
}

// FreezeHead is Stack.Freeze for a stack that no process has open.
func FreezeHead(dir, store string) (frozen string, err error) {
	frozen, err = freezeHead(dir, store)
	return frozen, wrap("freeze", vpath.Root, err)
}

func freezeHead(dir, storePath string) (string, error) {
	store, err := openStore(storePath)
	if err != nil {
		return "", err
	}
	defer unix.Close(store)
	home, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(home)
	below, err := readBelow(home)
	if err != nil {
		return "", err
	}
	root, err := openDir(home, "top")
	if err == unix.ENOENT {
		return below, nil // nothing has run in it
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(root)
	if empty, err := isHeadEmpty(home, root, store, below); err != nil || empty {
		return below, err
	}
	name := newLayerName()
	return name, putHead(store, name, name, root, home, dir)
}

// isHeadEmpty is isTopEmpty for a stack that no process has open.
func isHeadEmpty(home, root, store int, below string) (bool, error) {
	empty, err := isEmptyDelta(root)
	if err != nil || !empty {
		return false, err
	}
	if below == "" {
		var st unix.Stat_t // a log says perhaps that the root has another mode
		err := unix.Fstatat(home, "base.log", &st, unix.AT_SYMLINK_NOFOLLOW)
		return err == unix.ENOENT || err == nil && st.Size <= maxEmptyLog, ignoreENOENT(err)
	}
	l, err := openLayer(store, below)
	if err != nil {
		return false, err
	}
	defer l.close()
	return hasSameMode(root, l.root)
}

// maxEmptyLog is the size of a log without records, in bytes.
const maxEmptyLog = 32

func ignoreENOENT(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// Rewind replaces the head in dir, of a stack that no process has open, by an empty one above the
// frozen layer below; "" is the source. What the head had is lost unless it was frozen.
func Rewind(dir, store, below string) error {
	return wrap("rewind", vpath.Root, rewind(dir, store, below))
}

func rewind(dir, storePath, below string) error {
	store, err := openStore(storePath)
	if err != nil {
		return err
	}
	defer unix.Close(store)
	home, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(home)
	like := -1
	if below != "" {
		l, err := openLayer(store, below)
		if err == unix.ENOENT {
			return errdefs.New(errdefs.Precondition, "layer %s: %w", below, errLayerGone)
		}
		if err != nil {
			return err
		}
		defer l.close()
		like = l.root
	}
	name := newLayerName()
	if err := putHead(store, name, below, like, home, dir); err != nil {
		return err
	}
	discardLayer(store, name)
	return nil
}

// putHead makes a head above the layer below and puts it in the place of the one in dir, which is
// open as home and becomes name in store.
func putHead(store int, name, below string, like, home int, dir string) error {
	fresh, top, err := makeHead(store, name, below, like)
	if err != nil {
		return err
	}
	unix.Close(top)
	defer unix.Close(fresh)
	failpoint.At("freeze: prepared")
	if err := exchange(store, name, home, dir); err != nil {
		discardLayer(store, name)
		return err
	}
	failpoint.At("freeze: exchanged")
	return takeUnfinished(home, fresh)
}
