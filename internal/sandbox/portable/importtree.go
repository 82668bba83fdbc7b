package portable

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// The bounds of what is imported.
const (
	maxImportEntries = 2 << 20 // inodes, names and whiteouts, each
	maxImportPath    = 16 << 10
	maxImportPaths   = 512 << 20 // bytes of all; a small file can have long ones
	maxImportFile    = 1 << 40   // bytes, holes included
	maxImportChunk   = 1 << 20
	maxLinkTarget    = 4095 // PATH_MAX without the NUL
)

// inode is a row of fs_inode.
type inode struct {
	mode         uint32
	nlink, size  int64
	atime, mtime unix.Timespec
	names        int64
	target       string
	isCopied     bool // fs_origin has it: it is a copy of an entry of the base
}

func (i *inode) kind() uint32 { return i.mode & unix.S_IFMT }

// dentry is a row of fs_dentry.
type dentry struct {
	name string
	ino  int64
}

// tree is what a database holds, without the contents of files.
type tree struct {
	inodes    map[int64]*inode
	children  map[int64][]dentry
	whiteouts []vpath.Path
	chunk     int64
	base      string // of an overlay
	values    []keyValue
	notes     []string
}

// treeReader reads a tree and refuses one that is not consistent.
type treeReader struct {
	ctx     context.Context
	conn    *sql.Conn
	columns map[string][]string
	tree
}

func malformed(format string, args ...any) error {
	return errdefs.New(errdefs.Invalid, format, args...)
}

func readTree(ctx context.Context, conn *sql.Conn, columns map[string][]string) (*tree, error) {
	r := &treeReader{ctx: ctx, conn: conn, columns: columns, tree: tree{inodes: map[int64]*inode{}, children: map[int64][]dentry{}}}
	for _, step := range []func() error{r.config, r.readInodes, r.readNames, r.readLinks, r.readOrigins, r.readWhiteouts, r.check, r.readValues, r.readNotes} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &r.tree, nil
}

func (r *treeReader) each(query string, do func(scan func(...any) error) error) error {
	return eachRow(r.ctx, r.conn, query, do)
}

// value returns the value of a key, "" if there is none.
func (r *treeReader) value(table, key string) (value string, err error) {
	err = r.conn.QueryRowContext(r.ctx, "SELECT CAST(value AS TEXT) FROM "+table+" WHERE key = ?", key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

func (r *treeReader) config() error {
	text, err := r.value("fs_config", "chunk_size")
	if err != nil {
		return err
	}
	if r.chunk, err = strconv.ParseInt(text, 10, 64); err != nil || r.chunk < 1 || r.chunk > maxImportChunk {
		return malformed("fs_config: chunk_size is %s: want 1 to %d", vpath.Quote(text), maxImportChunk)
	}
	version, err := r.value("fs_config", "schema_version")
	if err != nil {
		return err
	}
	if version != "" && version != "0.4" {
		return malformed("fs_config: schema_version is %s: only 0.4 is known", vpath.Quote(version))
	}
	if r.columns["fs_overlay_config"] != nil {
		r.base, err = r.value("fs_overlay_config", "base_path")
	}
	return err
}

func (r *treeReader) readInodes() error {
	return r.each("SELECT ino, mode, nlink, size, atime, mtime, atime_nsec, mtime_nsec FROM fs_inode", func(scan func(...any) error) error {
		var ino, mode int64
		i := &inode{}
		if err := scan(&ino, &mode, &i.nlink, &i.size, &i.atime.Sec, &i.mtime.Sec, &i.atime.Nsec, &i.mtime.Nsec); err != nil {
			return err
		}
		const second = 1_000_000_000
		switch {
		case len(r.inodes) == maxImportEntries:
			return malformed("fs_inode has more than %d rows", maxImportEntries)
		case r.inodes[ino] != nil:
			return malformed("inode %d: it occurs twice", ino)
		case mode < 0 || mode > unix.S_IFMT|0o7777:
			return malformed("inode %d: mode %d is out of range", ino, mode)
		case i.atime.Nsec < 0 || i.atime.Nsec >= second || i.mtime.Nsec < 0 || i.mtime.Nsec >= second:
			return malformed("inode %d: its nanoseconds are out of range", ino)
		}
		i.mode = uint32(mode)
		if i.kind() == unix.S_IFREG && (i.size < 0 || i.size > maxImportFile) {
			return malformed("inode %d: size %d is out of range: at most %d bytes", ino, i.size, int64(maxImportFile))
		}
		r.inodes[ino] = i
		return nil
	})
}

func (r *treeReader) readNames() error {
	count := 0
	err := r.each("SELECT CAST(name AS BLOB), parent_ino, ino FROM fs_dentry ORDER BY parent_ino, 1", func(scan func(...any) error) error {
		var text []byte
		var parent, ino int64
		if err := scan(&text, &parent, &ino); err != nil {
			return err
		}
		if count++; count > maxImportEntries {
			return malformed("fs_dentry has more than %d rows", maxImportEntries)
		}
		n := dentry{string(text), ino}
		if err := vpath.CheckName(n.name); err != nil {
			return malformed("fs_dentry: in directory %d: %w", parent, err)
		}
		dir, child, siblings := r.inodes[parent], r.inodes[ino], r.children[parent]
		switch {
		case dir == nil || child == nil:
			return malformed("fs_dentry: %s: inode %d or its directory %d does not exist", vpath.Quote(n.name), ino, parent)
		case dir.kind() != unix.S_IFDIR:
			return malformed("fs_dentry: %s: inode %d is not a directory", vpath.Quote(n.name), parent)
		case ino == rootInode:
			return malformed("fs_dentry: %s names the root directory", vpath.Quote(n.name))
		case child.kind() == unix.S_IFDIR && child.names > 0:
			return malformed("fs_dentry: %s: directory %d has two names", vpath.Quote(n.name), ino)
		case len(siblings) > 0 && siblings[len(siblings)-1].name == n.name:
			return malformed("fs_dentry: %s occurs twice in directory %d", vpath.Quote(n.name), parent)
		}
		child.names++
		r.children[parent] = append(siblings, n)
		return nil
	})
	return err
}

func (r *treeReader) readLinks() error {
	return r.each("SELECT ino, CAST(target AS BLOB) FROM fs_symlink", func(scan func(...any) error) error {
		var ino int64
		var target []byte
		if err := scan(&ino, &target); err != nil {
			return err
		}
		i := r.inodes[ino]
		switch {
		case i == nil || i.kind() != unix.S_IFLNK:
			return malformed("fs_symlink: inode %d is not a symbolic link", ino)
		case i.target != "":
			return malformed("fs_symlink: inode %d occurs twice", ino)
		case len(target) == 0 || len(target) > maxLinkTarget || strings.IndexByte(string(target), 0) >= 0:
			return malformed("fs_symlink: the target of inode %d is empty, too long, or has a NUL", ino)
		}
		i.target = string(target)
		return nil
	})
}

func (r *treeReader) readOrigins() error {
	if r.columns["fs_origin"] == nil {
		return nil
	}
	return r.each("SELECT delta_ino FROM fs_origin", func(scan func(...any) error) error {
		var ino int64
		err := scan(&ino)
		if i := r.inodes[ino]; i != nil {
			i.isCopied = true
		}
		return err
	})
}

func (r *treeReader) readWhiteouts() error {
	if r.columns["fs_whiteout"] == nil {
		return nil
	}
	return r.each("SELECT CAST(path AS BLOB) FROM fs_whiteout", func(scan func(...any) error) error {
		var text []byte
		if err := scan(&text); err != nil {
			return err
		}
		p, err := vpath.Parse(string(text))
		switch {
		case err != nil:
			return malformed("fs_whiteout: %w", err)
		case string(p) != string(text) || p.IsRoot() || len(p) > maxImportPath:
			return malformed("fs_whiteout: path %.200s: want an absolute path in its shortest form, and not the root", vpath.Quote(string(text)))
		case len(r.whiteouts) == maxImportEntries:
			return malformed("fs_whiteout has more than %d rows", maxImportEntries)
		}
		r.whiteouts = append(r.whiteouts, p)
		return nil
	})
}

// check looks at what needs all tables: counts, and that every entry is below the root.
func (r *treeReader) check() error {
	if root := r.inodes[rootInode]; root == nil || root.kind() != unix.S_IFDIR {
		return malformed("inode %d: the root directory is missing", rootInode)
	}
	named := int64(0)
	for ino, i := range r.inodes {
		named += i.names
		switch {
		case i.kind() == unix.S_IFLNK && i.target == "" && i.names > 0:
			return malformed("inode %d: the symbolic link has no target", ino)
		case i.kind() == unix.S_IFDIR && i.names == 0 && ino != rootInode:
			return malformed("inode %d: the directory has no name", ino)
		case i.kind() != unix.S_IFDIR && i.nlink != i.names: // programs count directories differently
			return malformed("inode %d: it has %d names and nlink %d", ino, i.names, i.nlink)
		}
	}
	reached, size := int64(0), 0
	err := r.walk(func(p vpath.Path, _ int64, _ *inode) (bool, error) {
		if size += len(p); size > maxImportPaths {
			return false, malformed("fs_dentry: all paths together are longer than %d MiB", maxImportPaths>>20)
		}
		reached++
		return true, nil
	})
	if err == nil && reached != named {
		err = malformed("fs_dentry: %d entries are in directories that are not below the root", named-reached)
	}
	return err
}

// walk calls do for each name, directories before what is in them. If do returns false, walk skips
// what is in the directory.
func (t *tree) walk(do func(p vpath.Path, ino int64, i *inode) (bool, error)) error {
	type dir struct {
		path vpath.Path
		ino  int64
	}
	pending := []dir{{vpath.Root, rootInode}}
	for len(pending) > 0 {
		d := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		for _, n := range t.children[d.ino] {
			p, i := d.path.Child(n.name), t.inodes[n.ino]
			if len(p) > maxImportPath {
				return malformed("fs_dentry: a path is longer than %d bytes", maxImportPath)
			}
			more, err := do(p, n.ino, i)
			if err != nil {
				return err
			}
			if more && i.kind() == unix.S_IFDIR {
				pending = append(pending, dir{p, n.ino})
			}
		}
	}
	return nil
}

// readNotes notes what a sandbox does not take over.
func (r *treeReader) readNotes() error {
	for _, t := range []struct{ table, where, note string }{
		{"tool_calls", "", "the rows of tool_calls: the audit log has only what the new sandbox does"},
		{"agentfense_audit", "", "the audit log of the exported sandbox"},
		{"agentfense_meta", " WHERE key = 'policy'", "the policy of the exported sandbox: the new one has its own"},
	} {
		if r.columns[t.table] == nil {
			continue
		}
		var n int64
		if err := r.conn.QueryRowContext(r.ctx, "SELECT count(*) FROM "+t.table+t.where).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			r.notes = append(r.notes, "left out: "+t.note)
		}
	}
	return nil
}
