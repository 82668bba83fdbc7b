package supervise

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/inner"
	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/narrow"
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
// root. A bind of the program would name the path of the state directory in the mount tables inside.
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
	if err := unix.Mount("bwrap", at, "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
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
	if home := UserOf(&s.record).Home; s.keptHome.view == nil && home != "/" {
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

// isUsedBelow reports whether something other is mounted at or below a temporary directory, or it
// is in one of the system.
func (s *supervisor) isUsedBelow(path string) bool {
	_, mounts := s.shown()
	targets := []string{s.record.Workspace, isolate.Workspace}
	for _, m := range mounts {
		targets = append(targets, cmp.Or(m.Target, m.Source))
	}
	if home := UserOf(&s.record).Home; home != path {
		targets = append(targets, home)
	}
	if slices.ContainsFunc(targets, func(target string) bool { return safefs.IsBelow(target, path) }) {
		return true
	}
	return path != "/tmp" && path != "/var/tmp" && isolate.IsBelowAny(path, []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev", "/run", "/tmp", "/var",
	})
}

// innerSandbox is what an inner sandbox sees.
type innerSandbox struct {
	dir     string
	areas   []narrow.Area
	views   map[string]bool // areas that are views, by name
	points  []narrow.Point
	covered []isolate.Covering
	hidden  []string // mounts that it does not see
}

// areas are the mounts of the sandbox that can be narrowed, with their names in the directory of an
// inner sandbox.
func (s *supervisor) areas() []narrow.Area {
	view := filepath.Join(s.box.Dir(), launch.ViewDir)
	workspace, mounts := s.shown()
	all := []narrow.Area{{
		Name: filepath.Join(innerViews, mountspec.Workspace), From: inner.Text(filepath.Join(view, workspace)),
		At: []inner.Text{inner.Text(s.record.Workspace), isolate.Workspace},
	}}
	for _, m := range mounts {
		if m.View != "" {
			all = append(all, narrow.Area{Name: filepath.Join(innerViews, m.View), From: inner.Text(filepath.Join(view, m.View)), At: []inner.Text{inner.Text(m.Target)}})
		}
	}
	if s.keptHome.view != nil {
		all = append(all, narrow.Area{
			Name: launch.HomeViewDir, From: inner.Text(filepath.Join(s.box.Dir(), launch.HomeViewDir)), At: []inner.Text{inner.Text(UserOf(&s.record).Home)},
		})
	}
	for path, dir := range s.narrower.temporary {
		all = append(all, narrow.Area{Name: innerTemporary + path, From: inner.Text(dir), At: []inner.Text{inner.Text(path)}})
	}
	return all
}

// narrowFor mounts what an inner sandbox sees. The caller calls widenAgain also after an error.
func (s *supervisor) narrowFor(ctx context.Context, r *inner.Request) (*innerSandbox, error) {
	t := &s.narrower
	t.narrowing.Lock()
	defer t.narrowing.Unlock()
	t.next++
	n := &innerSandbox{dir: filepath.Join(t.dir, fmt.Sprint(t.next)), areas: s.areas()}
	if err := s.splitOff(n, r.Steps); err != nil {
		return n, err
	}
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return n, errdefs.New(errdefs.Internal, "inner sandbox: %w", err)
	}
	uid, gid := s.hostIDs()
	ctx, cancel := context.WithTimeout(ctx, narrowPatience)
	defer cancel()
	points, err := narrow.Mount(ctx, narrow.Job{Areas: n.areas, Dir: inner.Text(n.dir), Steps: r.Steps, UID: uid, GID: gid})
	n.points = points
	t.share(n, r.Steps)
	return n, err
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
		mounts = append(mounts, cmp.Or(m.Target, m.Source))
	}
	e, err := inner.SplitOff(steps, roots, mounts)
	if err != nil {
		return err
	}
	n.hidden = e.Hidden
	for _, c := range e.Covers {
		n.covered = append(n.covered, isolate.Covering{Path: c.Path, File: c.File, Mode: c.Mode, ReadOnly: c.ReadOnly})
	}
	return nil
}

// share counts the points that the inner sandbox made, and those of others that it needs because it
// mounts on them.
func (t *innerTable) share(n *innerSandbox, steps []inner.Step) {
	for _, p := range n.points {
		t.points[pointKey{n.areas[p.Area].Name, p.Path}] = &sharedPoint{point: p}
	}
	for i, a := range n.areas {
		for _, at := range a.At {
			for _, s := range steps {
				if !safefs.IsBelow(string(s.Path), string(at)) || s.Path == at {
					continue
				}
				rel := inner.Text(string(s.Path)[len(at)+1:])
				if shared := t.points[pointKey{a.Name, rel}]; shared != nil && !slices.ContainsFunc(n.points, func(p narrow.Point) bool { return p.Area == i && p.Path == rel }) {
					p := shared.point
					p.Area = i
					n.points = append(n.points, p)
				}
			}
		}
	}
	for _, p := range n.points {
		t.points[pointKey{n.areas[p.Area].Name, p.Path}].users++
	}
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
	var unused []narrow.Point
	for _, p := range n.points {
		key := pointKey{n.areas[p.Area].Name, p.Path}
		if t.points[key].users--; t.points[key].users == 0 {
			delete(t.points, key)
			unused = append(unused, p)
		}
	}
	if len(unused) == 0 {
		return
	}
	uid, gid := s.hostIDs()
	ctx, cancel := context.WithTimeout(context.Background(), letGoPatience)
	defer cancel()
	s.warn("inner sandbox: remove what was made to mount on", narrow.Remove(ctx, narrow.Job{Areas: n.areas, Remove: unused, UID: uid, GID: gid}))
}
