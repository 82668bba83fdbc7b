package gitcommit

import (
	"bytes"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// modeTree is the mode of a directory in a tree.
const modeTree = "40000"

// maxPath is the length of the longest path in a tree, in bytes.
const maxPath = 64 << 10

// Inspected is what a commit changes.
type Inspected struct {
	Parents []string
	// Changed are the files that differ between the first parent, or an empty tree, and the commit,
	// by their paths in the repository. The zero Entry is a deletion.
	Changed map[string]Entry
}

// Inspect compares a commit with its first parent, by their trees. Errors: Invalid if it changes
// more than most files, or an object is damaged or malformed; NotFound.
func (o *Objects) Inspect(commit string, most int) (found Inspected, err error) {
	tree, parents, err := o.commit(commit)
	if err != nil {
		return found, err
	}
	old := ""
	if len(parents) > 0 {
		if old, _, err = o.commit(parents[0]); err != nil {
			return found, err
		}
	}
	d := difference{objects: o, most: most, changed: map[string]Entry{}, was: map[string]Entry{}}
	return Inspected{parents, d.changed}, d.trees("", old, tree)
}

// Changed is a file that differs between two commits. The zero Entry is none.
type Changed struct {
	Path     string // in the repository
	Old, New Entry
}

// Compare returns the files that differ between two commits, by path. Errors: as Inspect.
func (o *Objects) Compare(from, to string, most int) ([]Changed, error) {
	old, _, err := o.commit(from)
	if err != nil {
		return nil, err
	}
	now, _, err := o.commit(to)
	if err != nil {
		return nil, err
	}
	d := difference{objects: o, most: most, changed: map[string]Entry{}, was: map[string]Entry{}}
	if err := d.trees("", old, now); err != nil {
		return nil, err
	}
	list := make([]Changed, 0, len(d.changed))
	for _, path := range slices.Sorted(maps.Keys(d.changed)) {
		list = append(list, Changed{path, d.was[path], d.changed[path]})
	}
	return list, nil
}

// commit returns the tree and the parents of a commit.
func (o *Objects) commit(id string) (tree string, parents []string, err error) {
	var body bytes.Buffer
	if err := o.read(id, "commit", maxObject, &body); err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(body.String()) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case key == "tree" && tree == "":
			tree = value
		case key == "parent" && tree != "":
			parents = append(parents, value)
		case tree == "":
			return "", nil, errdefs.New(errdefs.Invalid, "the commit %s is malformed: it has no tree", id)
		default:
			return tree, parents, nil
		}
	}
	return "", nil, errdefs.New(errdefs.Invalid, "the commit %s is malformed: it ends after its parents", id)
}

// difference is a comparison of two trees.
type difference struct {
	objects *Objects
	most    int
	changed map[string]Entry
	was     map[string]Entry // before, of those that are changed
}

// trees compares the trees old and now at a directory, which is "" or ends with a slash. An id of
// "" is an empty tree.
func (d *difference) trees(dir, old, now string) error {
	if old == now {
		return nil
	}
	if len(dir) > maxPath {
		return errdefs.New(errdefs.Invalid, "the tree has a path longer than %d bytes", maxPath)
	}
	was, err := d.objects.tree(old)
	if err != nil {
		return err
	}
	is, err := d.objects.tree(now)
	if err != nil {
		return err
	}
	if now != "" && dir != "" && len(is) == 0 {
		return errdefs.New(errdefs.Invalid, "%s: the tree has an empty directory, which git does not make", vpath.Escape(dir))
	}
	for name, e := range was {
		if err := d.entries(dir+name, e, is[name]); err != nil {
			return err
		}
	}
	for name, e := range is {
		if _, had := was[name]; had {
			continue
		}
		if err := d.entries(dir+name, Entry{}, e); err != nil {
			return err
		}
	}
	return nil
}

// entries compares what two trees have at a path.
func (d *difference) entries(path string, old, now Entry) error {
	if old == now {
		return nil
	}
	oldFile, oldTree := parted(old)
	nowFile, nowTree := parted(now)
	if oldFile != nowFile {
		d.changed[path], d.was[path] = nowFile, oldFile
		if len(d.changed) > d.most {
			return errdefs.New(errdefs.Invalid, "the commit changes more than %d files", d.most)
		}
	}
	return d.trees(path+"/", oldTree, nowTree)
}

// parted returns an entry that is a file, or the id of one that is a tree.
func parted(e Entry) (file Entry, tree string) {
	if e.Mode == modeTree {
		return Entry{}, e.ID
	}
	return e, ""
}

// tree returns the entries of a tree by name.
func (o *Objects) tree(id string) (map[string]Entry, error) {
	if id == "" {
		return nil, nil
	}
	var body bytes.Buffer
	if err := o.read(id, "tree", maxObject, &body); err != nil {
		return nil, err
	}
	entries := map[string]Entry{}
	last := ""
	for rest := body.Bytes(); len(rest) > 0; {
		mode, after, ok := bytes.Cut(rest, []byte{' '})
		name, after, ok2 := bytes.Cut(after, []byte{0})
		size := len(id) / 2
		if !ok || !ok2 || len(after) < size {
			return nil, badTree(id, "it is cut off")
		}
		e := Entry{strings.TrimLeft(string(mode), "0"), hex.EncodeToString(after[:size])}
		key := string(name)
		if e.Mode == modeTree {
			key += "/" // as git sorts
		}
		_, twice := entries[string(name)]
		if len(name) == 0 || bytes.IndexByte(name, '/') >= 0 || e.Mode == "" || twice || key <= last {
			return nil, badTree(id, "its entry "+vpath.Quote(string(name))+" is malformed, or twice, or not in order")
		}
		entries[string(name)], last, rest = e, key, after[size:]
	}
	return entries, nil
}

func badTree(id, why string) error {
	return errdefs.New(errdefs.Invalid, "the tree %s is malformed: %s", id, why)
}
