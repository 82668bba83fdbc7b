package narrow

import (
	"errors"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/inner"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/worker"
)

// Main is the process that narrows. It returns its exit code.
func Main() int {
	runtime.LockOSThread() // setfsuid(2) is of a thread
	unix.Umask(0)
	return worker.Main(func(job *Job) ([]Point, error) {
		w := &work{job: job, ours: map[uint64]bool{}}
		if job.Remove != nil {
			return nil, w.remove()
		}
		err := w.mount()
		return w.points, err
	})
}

// work is one job.
type work struct {
	job    *Job
	areas  []area
	points []Point
	files  int             // how many contents were made
	ours   map[uint64]bool // the devices of the file systems that this process made
}

// area is an area while it is narrowed. Its descriptors stay open until the end of the process.
type area struct {
	Area

	index  int
	from   int    // root of the sandbox's mount
	target string // where the result is
	root   int    // root of the present result
	absent bool   // the result shows nothing but what steps put there, and is ours
}

// Names in the directory of the results.
const contentsDir = "contents"

// mount does the job's steps.
func (w *work) mount() error {
	dir := string(w.job.Dir)
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=8m"); err != nil {
		return errdefs.New(errdefs.Unsupported, "inner sandbox: mount tmpfs: %w", err)
	}
	if err := os.Mkdir(path.Join(dir, contentsDir), 0o700); err != nil {
		return internal(err)
	}
	for i, a := range w.job.Areas {
		from, err := unix.Open(string(a.From), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return internal(err)
		}
		next := area{Area: a, index: i, from: from, target: path.Join(dir, a.Name)}
		if err := os.MkdirAll(next.target, 0o755); err != nil {
			return internal(err)
		}
		if err := w.conceal(&next); err != nil {
			return internal(err)
		}
		w.areas = append(w.areas, next)
	}
	for _, s := range w.job.Steps {
		if err := w.apply(s); err != nil {
			return explain(s, err)
		}
	}
	for _, a := range w.areas {
		if a.absent {
			if err := setReadOnly(a.root, 0); err != nil {
				return internal(err)
			}
		}
	}
	return nil
}

func internal(err error) error {
	return errdefs.New(errdefs.Internal, "inner sandbox: %w", withoutPath(err))
}

// withoutPath removes a path of the host from an error.
func withoutPath(err error) error {
	if failure, is := errors.AsType[*os.PathError](err); is {
		return failure.Err
	}
	return err
}

// explain says which step failed, and why.
func explain(s inner.Step, err error) error {
	err = withoutPath(err)
	kind := errdefs.Denied
	switch {
	case errors.Is(err, unix.ELOOP):
		kind, err = errdefs.Invalid, errors.New("it, or a directory above it, is a symbolic link; name what it leads to")
	case errors.Is(err, unix.ENOENT):
		kind, err = errdefs.NotFound, errors.New("it does not exist")
	case errors.Is(err, unix.ENOSYS):
		kind, err = errdefs.Unsupported, errors.New("the kernel is too old: mounts of this kind need Linux 5.12")
	}
	return errdefs.New(kind, "%q: %w", s.Path, err)
}

// apply does a step: at the root of each area that its path is, or is above, else in the one area
// that its path is below.
func (w *work) apply(s inner.Step) error {
	within, depth, rel := -1, 0, ""
	for i := range w.areas {
		covers, whole := false, false
		for _, root := range w.areas[i].At {
			r, at := string(root), string(s.Path)
			covers, whole = covers || safefs.IsBelow(r, at), whole || r == at
			if safefs.IsBelow(at, r) && len(r) > depth {
				within, depth, rel = i, len(r), strings.TrimPrefix(at[len(r):], "/")
			}
		}
		if covers {
			if err := w.applyAbove(&w.areas[i], s, whole); err != nil {
				return err
			}
		}
	}
	if rel == "" {
		return nil // elsewhere, or a root
	}
	return w.applyBelow(&w.areas[within], s, rel)
}

// applyAbove does a step at the area's root, or above it.
func (w *work) applyAbove(a *area, s inner.Step, whole bool) error {
	switch s.Kind {
	case inner.ReadOnly, inner.Writable:
		return a.replace(a.from, s.Kind == inner.ReadOnly)
	case inner.Empty:
		if whole {
			return w.empty(a, s)
		}
		return w.conceal(a)
	case inner.File:
		if whole {
			return unix.ENOTDIR
		}
		return w.conceal(a)
	case inner.Freeze:
		if whole {
			return setReadOnly(a.root, 0)
		}
	}
	return nil
}

// conceal makes the area an empty directory of ours.
func (w *work) conceal(a *area) error {
	tree, err := w.own(newTmpfs([][2]string{{"mode", "0755"}}))
	if err != nil {
		return err
	}
	a.absent = true
	return a.put(tree)
}

// empty makes the area an empty directory of the sandbox's user.
func (w *work) empty(a *area, s inner.Step) error {
	tree, err := w.userTmpfs(s)
	if err != nil {
		return err
	}
	a.absent = false
	return a.put(tree)
}

// replace makes the area a copy of a tree of mounts.
func (a *area) replace(of int, readOnly bool) error {
	tree, err := clone(of, readOnly)
	if err != nil {
		return err
	}
	a.absent = false
	return a.put(tree)
}

// put mounts tree as the area's result, over an earlier one.
func (a *area) put(tree int) error {
	defer unix.Close(tree)
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, a.target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	root, err := unix.Open(a.target, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	a.root = root
	return err
}

// applyBelow does a step at rel in the area.
func (w *work) applyBelow(a *area, s inner.Step, rel string) error {
	switch s.Kind {
	case inner.ReadOnly, inner.Writable:
		return w.show(a, s, rel)
	case inner.Empty:
		tree, err := w.userTmpfs(s)
		if err != nil {
			return err
		}
		return w.cover(a, rel, tree, true, false)
	case inner.File:
		tree, err := w.file(s)
		if err != nil {
			return err
		}
		return w.cover(a, rel, tree, false, false)
	case inner.Freeze:
		at, err := open(a.root, rel, 0)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		return setReadOnly(at, 0)
	}
	at, err := w.point(a, rel, point{dir: true, mode: s.Mode})
	if err != nil {
		return err
	}
	return unix.Close(at)
}

// show mounts what the sandbox has at rel.
func (w *work) show(a *area, s inner.Step, rel string) error {
	from, err := open(a.from, rel, unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) && s.Optional {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(from)
	kind, err := typeOf(from)
	if err == nil && kind == unix.S_IFLNK {
		err = unix.ELOOP
	}
	if err != nil {
		return err
	}
	tree, err := clone(from, s.Kind == inner.ReadOnly)
	if err != nil {
		return err
	}
	return w.cover(a, rel, tree, kind == unix.S_IFDIR, true)
}

// cover mounts tree at rel in the area, and closes it. At a sealed path nothing is made to cover
// it, unless something of the sandbox is to be shown there. A refusal for any other reason, as by
// the mode of a directory, which programs can change, is an error.
func (w *work) cover(a *area, rel string, tree int, isDir, shows bool) error {
	defer unix.Close(tree)
	if !shows && slices.Contains(a.Sealed, inner.Text(rel)) {
		at, err := open(a.root, rel, unix.O_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		unix.Close(at)
	}
	at, err := w.point(a, rel, point{dir: isDir, mode: 0o755, temporary: true})
	if err != nil {
		return err
	}
	defer unix.Close(at)
	kind, err := typeOf(at)
	if err == nil && !isDir && kind == unix.S_IFDIR {
		err = unix.EISDIR
	}
	if err != nil {
		return err
	}
	return unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// point is what is made where nothing is.
type point struct {
	dir       bool
	mode      uint32
	temporary bool // remove it at the end
}

// point opens rel in the area, and makes it if nothing is there. A file may cover a link.
func (w *work) point(a *area, rel string, p point) (int, error) {
	flags := uint64(unix.O_NOFOLLOW)
	if p.dir {
		flags = unix.O_DIRECTORY
	}
	at, err := open(a.root, rel, flags)
	if !errors.Is(err, unix.ENOENT) {
		return at, err
	}
	dir := a.root
	if above := path.Dir(rel); above != "." {
		if dir, err = w.point(a, above, point{dir: true, mode: 0o755, temporary: p.temporary}); err != nil {
			return -1, err
		}
		defer unix.Close(dir)
	}
	return w.make(a, dir, rel, p)
}

// make makes what is to be at rel, in dir, and opens it.
func (w *work) make(a *area, dir int, rel string, p point) (int, error) {
	ours, err := w.isOurs(dir)
	if err != nil {
		return -1, err
	}
	name := path.Base(rel)
	if !ours {
		w.becomeUser()
		defer w.becomeSelf()
	}
	if err := makeIn(dir, name, p); err != nil {
		return -1, err
	}
	at, err := open(dir, name, unix.O_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	switch {
	case ours:
		err = unix.Fchownat(at, "", w.job.UID, w.job.GID, unix.AT_EMPTY_PATH)
	case p.temporary:
		var st unix.Stat_t
		err = unix.Fstatat(at, "", &st, unix.AT_EMPTY_PATH)
		w.points = append(w.points, Point{Area: a.index, Path: inner.Text(rel), Dir: p.dir, Ino: st.Ino})
	}
	if err != nil {
		unix.Close(at)
		return -1, err
	}
	return at, nil
}

// makeIn makes a directory or an empty file.
func makeIn(dir int, name string, p point) error {
	if p.dir {
		return unix.Mkdirat(dir, name, p.mode)
	}
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
