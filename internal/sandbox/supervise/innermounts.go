package supervise

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/inner"
	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/narrow"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// innerDir is the directory of a sandbox for what belongs to inner sandboxes. It is empty unless a
// tmpfs is mounted there, which ends with this process.
const innerDir = "inner"

// Names in innerDir, beside a directory for each inner sandbox.
const (
	innerSocket    = "socket"
	innerShim      = "shim"      // where the program in bubblewrap's place is mounted
	innerNothing   = "nothing"   // an empty directory
	innerTemporary = "temporary" // the temporary directories
	innerViews     = "views"     // of an inner sandbox: those of the workspace and of mounts
)

// mountShim shows the program, by an overlay of its directory, in a mount of which it is in the
// root. A bind of the program would name the path of the state directory in the mount tables
// inside.
func mountShim(dir, program string) (string, error) {
	at, nothing := filepath.Join(dir, innerShim), filepath.Join(dir, innerNothing)
	for _, d := range []string{at, nothing} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return "", err
		}
	}
	var layers [2]int
	for i, d := range []string{filepath.Dir(program), nothing} {
		fd, err := unix.Open(d, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		layers[i] = fd
	}
	options := fmt.Sprintf("lowerdir=%s:%s,userxattr,redirect_dir=nofollow,metacopy=off,index=off", safefs.ProcPath(layers[0]), safefs.ProcPath(layers[1]))
	if err := unix.Mount("agentfense", at, "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return "", fmt.Errorf("overlayfs: %w", err)
	}
	return filepath.Join(at, filepath.Base(program)), nil
}

// mountTemporary makes the temporary directories of the sandbox that its inner sandboxes share. One
// in which something is mounted is not shared: commands may have put links into it.
func (s *supervisor) mountTemporary() error {
	uid, gid := s.hostIDs()
	t := &s.narrower
	t.temporary = map[string]string{}
	modes := map[string]string{"/tmp": "1777", "/var/tmp": "1777"}
	if home := UserOf(&s.record).Home; s.keptHome.view == nil && home != "/" && !isolate.IsBelowAny(home, ownedDirs) {
		modes[home] = "0755"
	}
	for path, mode := range modes {
		if s.isUsedBelow(path) {
			continue
		}
		dir := filepath.Join(t.dir, innerTemporary+path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return errdefs.New(errdefs.Internal, "temporary directory: %w", err)
		}
		options := fmt.Sprintf("mode=%s,uid=%d,gid=%d", mode, uid, gid)
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return errdefs.New(errdefs.Unsupported, "temporary directory: mount tmpfs: %w", err)
		}
		t.temporary[path] = dir
	}
	return nil
}

// isUsedBelow reports whether something other is mounted at or below a directory inside.
func (s *supervisor) isUsedBelow(path string) bool {
	_, mounts := s.shown()
	targets := []string{s.record.Workspace}
	if path != isolate.Workspace {
		targets = append(targets, isolate.Workspace)
	}
	for _, m := range mounts {
		targets = append(targets, m.Target)
	}
	if home := UserOf(&s.record).Home; home != path {
		targets = append(targets, home)
	}
	return slices.ContainsFunc(targets, func(target string) bool { return safefs.IsBelow(target, path) })
}

// ownedDirs are directories inside that are the system's, or made anew. A home directory in one is
// not shared with inner sandboxes.
var ownedDirs = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev", "/run", "/tmp", "/var",
}

// innerSandbox is what an inner sandbox sees.
type innerSandbox struct {
	dir     string
	areas   []narrow.Area
	busy    map[*layer.Stack][]vpath.Path // what it mounts on in views
	points  []*sharedPoint
	covered []isolate.Covering
	hidden  []string // mounts that it does not see
}

// area is a mount of the sandbox that can be narrowed, the layers that it shows, if any, and its
// policy; nil lets everything be made.
type area struct {
	narrow.Area

	stack  *layer.Stack
	policy *policy.Policy
}

// areas are all areas. Their names are paths in the directory of an inner sandbox.
func (s *supervisor) areas() []area {
	view := filepath.Join(s.box.Dir(), launch.ViewDir)
	workspace, _ := s.shown()
	places := []string{s.record.Workspace}
	if !s.isUsedBelow(isolate.Workspace) { // it shows the workspace, too
		places = append(places, isolate.Workspace)
	}
	all := []area{{newArea(filepath.Join(innerViews, mountspec.Workspace), filepath.Join(view, workspace), places...), s.stack, s.policy.Load()}}
	for _, m := range s.mounts {
		all = append(all, area{newArea(filepath.Join(innerViews, m.name), filepath.Join(view, m.name), m.target), m.Stack, m.Policy})
	}
	if s.keptHome.view != nil {
		all = append(all, area{newArea(launch.HomeViewDir, filepath.Join(s.box.Dir(), launch.HomeViewDir), UserOf(&s.record).Home), s.keptHome.stack, nil})
	}
	for path, dir := range s.narrower.temporary {
		all = append(all, area{newArea(innerTemporary+path, dir, path), nil, nil})
	}
	return all
}

func newArea(name, from string, at ...string) narrow.Area {
	a := narrow.Area{Name: name, From: inner.Text(from)}
	for _, path := range at {
		a.At = append(a.At, inner.Text(path))
	}
	return a
}

// narrowFor mounts what an inner sandbox sees. The caller calls widenAgain also after an error.
func (s *supervisor) narrowFor(ctx context.Context, r *inner.Request) (*innerSandbox, error) {
	t := &s.narrower
	t.narrowing.Lock()
	defer t.narrowing.Unlock()
	t.next++
	n := &innerSandbox{dir: filepath.Join(t.dir, fmt.Sprint(t.next)), busy: map[*layer.Stack][]vpath.Path{}}
	for _, a := range s.areas() {
		if a.stack != nil {
			n.busy[a.stack] = busyIn(a.Area, r.Steps)
			a.seal(n.busy[a.stack])
		}
		n.areas = append(n.areas, a.Area)
	}
	if err := s.splitOff(n, r.Steps); err != nil {
		return n, err
	}
	t.sandboxes[n] = struct{}{}
	t.holdBusy(n)
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return n, errdefs.New(errdefs.Internal, "inner sandbox: %w", err)
	}
	uid, gid := s.hostIDs()
	ctx, cancel := context.WithTimeout(ctx, narrowPatience)
	defer cancel()
	points, err := narrow.Mount(ctx, narrow.Job{Areas: n.areas, Dir: inner.Text(n.dir), Steps: r.Steps, UID: uid, GID: gid})
	t.share(n, points, r.Steps)
	return n, err
}

// busyIn are the paths in an area that steps restrict. As long as the inner sandbox is there they
// stay where they are: with another entry at the path, the kernel would end the mount there.
func busyIn(a narrow.Area, steps []inner.Step) (busy []vpath.Path) {
	for _, s := range steps {
		if s.Kind != inner.ReadOnly && s.Kind != inner.Empty && s.Kind != inner.File {
			continue
		}
		for _, at := range a.At {
			if s.Path != at && safefs.IsBelow(string(s.Path), string(at)) {
				busy = append(busy, vpath.Path(s.Path[len(at):]))
			}
		}
	}
	return busy
}

// seal notes the paths at which the policy lets no program make anything.
func (a *area) seal(paths []vpath.Path) {
	for _, p := range paths {
		if a.policy == nil {
			return
		}
		if d := a.policy.Decide(p); d.Permission != policy.Write && !d.Own {
			a.Sealed = append(a.Sealed, inner.Text(p.Rel()))
		}
	}
}

// holdBusy puts the busy paths of all inner sandboxes in force, for the layers of one.
func (t *innerTable) holdBusy(n *innerSandbox) {
	for stack := range n.busy {
		var all []vpath.Path
		for other := range t.sandboxes {
			all = append(all, other.busy[stack]...)
		}
		stack.SetBusy(all)
	}
}

// splitOff finds what the steps mean outside of the areas.
func (s *supervisor) splitOff(n *innerSandbox, steps []inner.Step) error {
	var roots, mounts []string
	for _, a := range n.areas {
		for _, at := range a.At {
			roots = append(roots, string(at))
		}
	}
	for _, m := range s.binds {
		mounts = append(mounts, m.Target)
	}
	e, err := inner.SplitOff(steps, roots, mounts)
	if err != nil {
		return err
	}
	n.hidden, n.covered = e.Hidden, e.Covers
	return nil
}

// share counts the points that the inner sandbox made, and those of others at or above which it
// mounts. A program may have removed an earlier point where nothing keeps it, as in /tmp.
func (t *innerTable) share(n *innerSandbox, made []narrow.Point, steps []inner.Step) {
	for _, p := range made {
		key := pointKey{n.areas[p.Area].Name, p.Path}
		t.points[key] = &sharedPoint{key: key, point: p}
	}
	for _, a := range n.areas {
		for key, shared := range t.points {
			if key.area == a.Name && slices.ContainsFunc(steps, func(s inner.Step) bool { return isBelowPoint(a, s, key.path) }) {
				shared.users++
				n.points = append(n.points, shared)
			}
		}
	}
}

// isBelowPoint reports whether a step's path is a point of an area, or below it.
func isBelowPoint(a narrow.Area, s inner.Step, point inner.Text) bool {
	return slices.ContainsFunc(a.At, func(at inner.Text) bool {
		return safefs.IsBelow(string(s.Path), filepath.Join(string(at), string(point)))
	})
}

// widenAgain removes what narrowFor made.
func (s *supervisor) widenAgain(n *innerSandbox) {
	t := &s.narrower
	t.narrowing.Lock()
	defer t.narrowing.Unlock()
	if err := unix.Unmount(n.dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		s.warn("inner sandbox: unmount", err)
	}
	if err := os.Remove(n.dir); err != nil && !os.IsNotExist(err) {
		s.warn("inner sandbox: remove", err)
	}
	delete(t.sandboxes, n)
	t.holdBusy(n)
	var unused []narrow.Point
	for _, shared := range n.points {
		if shared.users--; shared.users > 0 {
			continue
		}
		if t.points[shared.key] == shared {
			delete(t.points, shared.key)
		}
		p := shared.point
		p.Area = slices.IndexFunc(n.areas, func(a narrow.Area) bool { return a.Name == shared.key.area })
		unused = append(unused, p)
	}
	if len(unused) == 0 {
		return
	}
	slices.SortFunc(unused, func(p, q narrow.Point) int { return strings.Compare(string(p.Path), string(q.Path)) }) // outer before inner
	uid, gid := s.hostIDs()
	ctx, cancel := context.WithTimeout(context.Background(), letGoPatience)
	defer cancel()
	s.warn("inner sandbox: remove what was made to mount on", narrow.Remove(ctx, narrow.Job{Areas: n.areas, Remove: unused, UID: uid, GID: gid}))
}
