package readview

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// maxFollowed is how many symbolic links a path may lead through, as for the
// kernel (path_resolution(7)).
const maxFollowed = 40

// follow returns what a path leads to by way of the view's symbolic links, as for
// a process inside. Each step is under the policy, and no link is followed by the
// kernel. Errors: as Stat; Denied for a link that may not be read, and for one that
// leads out of the workspace, where the sandbox has files of its own; Invalid for
// links without end.
func (v *View) follow(path vpath.Path) (Entry, error) {
	entry := Entry{Path: vpath.Root}
	rest := string(path)
	for followed := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		at, err := descend(entry.Path, name, path)
		if err != nil {
			return Entry{}, err
		}
		if at == entry.Path {
			continue
		}
		next, err := v.Stat(at)
		if err != nil {
			return Entry{}, err
		}
		if next.Mode&record.TypeBits != unix.S_IFLNK {
			entry = next
			continue
		}
		if followed++; followed > maxFollowed {
			return Entry{}, errdefs.New(errdefs.Invalid, "%s: leads through more than %d symbolic links", path, maxFollowed)
		}
		if next.Permission < policy.Read {
			return Entry{}, nameOnly(next)
		}
		target := next.Target
		if strings.HasPrefix(target, "/") {
			inside, ok := v.inWorkspace(target)
			if !ok {
				return Entry{}, outside(path)
			}
			entry, target = Entry{Path: vpath.Root}, inside
		}
		rest = target + "/" + rest
	}
	return entry, nil
}

// inWorkspace returns what is left of an absolute path inside once it has led to
// the workspace.
func (v *View) inWorkspace(target string) (rest string, ok bool) {
	for _, workspace := range []string{v.workspace, v.alias} {
		if rest, ok = strings.CutPrefix(target+"/", strings.TrimSuffix(workspace, "/")+"/"); ok && workspace != "" {
			return rest, true
		}
	}
	return "", false
}

// descend returns where one element of a path leads from a directory.
func descend(dir vpath.Path, name string, path vpath.Path) (vpath.Path, error) {
	switch {
	case name == "" || name == ".":
		return dir, nil
	case name == ".." && dir.IsRoot():
		return "", outside(path)
	case name == "..":
		return dir.Dir(), nil
	}
	if err := vpath.CheckName(name); err != nil {
		return "", err
	}
	return dir.Child(name), nil
}

func outside(path vpath.Path) error {
	return errdefs.New(errdefs.Denied, "%s: a symbolic link leads out of the workspace, where a command inside can read alone", path)
}

func nameOnly(e Entry) error {
	return errdefs.New(errdefs.Denied, "%s: the policy shows its name only (%s)", e.Path, e.Permission)
}
