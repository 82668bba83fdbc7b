package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/ignore"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// uploadTree is a directory that is to be uploaded: what ignore does not leave
// out, by path.
type uploadTree struct {
	path    string // absolute
	root    *os.Root
	files   []control.File
	at      int
	skipped []vpath.Path // what no codebase can hold: sockets, FIFOs, devices
	told    func(sent int)
}

// openTree looks through a directory. Errors: NotFound; Invalid for no
// directory, or malformed patterns; Denied.
func openTree(dir string) (*uploadTree, error) {
	path, err := realPath(dir)
	if err != nil {
		return nil, fault.New(fault.NotFound, "%w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%w", err)
	}
	t := &uploadTree{path: path, root: root, told: func(int) {}}
	texts := []string{ignore.Defaults}
	for _, name := range ignore.Names {
		text, err := root.ReadFile(name)
		switch {
		case err == nil:
			texts = append(texts, string(text))
		case !errors.Is(err, fs.ErrNotExist):
			root.Close()
			return nil, fault.New(fault.Invalid, "%s: %w", sandbox.HostPath(filepath.Join(path, name)), err)
		}
	}
	matcher, err := ignore.New(texts...)
	if err == nil {
		err = t.look(matcher)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return t, nil
}

func (t *uploadTree) close() { t.root.Close() }

func (t *uploadTree) total() int { return len(t.files) }

// look lists what is to be uploaded.
func (t *uploadTree) look(matcher *ignore.Matcher) error {
	return fs.WalkDir(t.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fault.New(fault.Denied, "%w", err)
		}
		if name == "." {
			return nil
		}
		path, err := vpath.Parse(name)
		if err != nil {
			return err
		}
		if matcher.ExcludesEntry(path, entry.IsDir()) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return fault.New(fault.Precondition, "%s: it went while the directory was looked through", path)
		}
		return t.add(path, info)
	})
}

func (t *uploadTree) add(path vpath.Path, info fs.FileInfo) error {
	f := control.File{Path: path, Mode: info.Mode() & (fs.ModeType | fs.ModePerm)}
	switch info.Mode().Type() {
	case 0:
		f.SizeBytes = info.Size()
	case fs.ModeDir:
	case fs.ModeSymlink:
		target, err := t.root.Readlink(path.Rel())
		if err != nil {
			return fault.New(fault.Precondition, "%s: %w", path, err)
		}
		f.Target = target
	default:
		t.skipped = append(t.skipped, path)
		return nil
	}
	t.files = append(t.files, f)
	return nil
}

// next is control.Server's Upload's: it opens the next file.
func (t *uploadTree) next() (control.File, *os.File, error) {
	if t.at == len(t.files) {
		return control.File{}, nil, io.EOF
	}
	f := t.files[t.at]
	t.at++
	t.told(t.at)
	if !f.Mode.IsRegular() {
		return f, nil, nil
	}
	content, err := t.root.OpenFile(f.Path.Rel(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return f, nil, fault.New(fault.Denied, "%w", err)
	}
	info, err := content.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.New(fault.Precondition, "%s: it became something else while the directory was read", f.Path)
	}
	if err != nil {
		content.Close()
		return f, nil, err
	}
	f.SizeBytes, f.Mode = info.Size(), info.Mode()&(fs.ModeType|fs.ModePerm)
	return f, content, nil
}
