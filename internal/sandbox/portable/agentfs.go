package portable

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// chunkBytes is the size of the chunks of a file. It is the default of AgentFS, which every
// implementation reads.
const chunkBytes = 4096

// agentfsSchema has the tables of AgentFS 0.4 (its SPEC.md) with an overlay. Where its programs
// differ from the specification, both read this: tool_calls has status, and the parent of a
// whiteout has a default.
const agentfsSchema = `
CREATE TABLE fs_config (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE fs_inode (
  ino INTEGER PRIMARY KEY AUTOINCREMENT, mode INTEGER NOT NULL, nlink INTEGER NOT NULL DEFAULT 0,
  uid INTEGER NOT NULL DEFAULT 0, gid INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0,
  atime INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL, rdev INTEGER NOT NULL DEFAULT 0,
  atime_nsec INTEGER NOT NULL DEFAULT 0, mtime_nsec INTEGER NOT NULL DEFAULT 0, ctime_nsec INTEGER NOT NULL DEFAULT 0);
CREATE TABLE fs_dentry (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, parent_ino INTEGER NOT NULL, ino INTEGER NOT NULL,
  UNIQUE(parent_ino, name));
CREATE INDEX idx_fs_dentry_parent ON fs_dentry(parent_ino, name);
CREATE TABLE fs_data (ino INTEGER NOT NULL, chunk_index INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (ino, chunk_index));
CREATE TABLE fs_symlink (ino INTEGER PRIMARY KEY, target TEXT NOT NULL);
CREATE TABLE fs_whiteout (path TEXT PRIMARY KEY, parent_path TEXT NOT NULL DEFAULT '', created_at INTEGER NOT NULL);
CREATE INDEX idx_fs_whiteout_parent ON fs_whiteout(parent_path);
CREATE TABLE fs_origin (delta_ino INTEGER PRIMARY KEY, base_ino INTEGER NOT NULL);
CREATE TABLE fs_overlay_config (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE tool_calls (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, parameters TEXT, result TEXT, error TEXT,
  status TEXT NOT NULL DEFAULT 'pending', started_at INTEGER NOT NULL, completed_at INTEGER, duration_ms INTEGER);
CREATE INDEX idx_tool_calls_name ON tool_calls(name);
CREATE INDEX idx_tool_calls_started_at ON tool_calls(started_at);
CREATE TABLE kv_store (
  key TEXT PRIMARY KEY, value TEXT NOT NULL, created_at INTEGER DEFAULT (unixepoch()), updated_at INTEGER DEFAULT (unixepoch()));
CREATE INDEX idx_kv_store_created_at ON kv_store(created_at);
CREATE TABLE agentfense_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
`

// rootInode is the inode number of the root directory in AgentFS.
const rootInode = 1

// AgentFS writes the new file name: a database in the format of AgentFS 0.4, an overlay over the
// sandbox's source, with the audit log and what Query shows in tables of ours. Errors: Exists,
// Exhausted; those of changes.OpenToRead.
func AgentFS(ctx context.Context, s *record.Sandbox, name string, how Options) (Result, error) {
	return export(s, name, func(d *delta, o *safefs.NewFile) (err error) {
		db, err := openNew(o.Temporary, how.MostBytes)
		if err != nil {
			return failed(name, err)
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		err = inTransaction(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			w := &agentfsWriter{ctx: ctx, d: d, tx: tx, source: how.Source, inodes: map[vpath.Path]int64{}, links: map[vpath.Path]int64{}}
			return w.write(s)
		})
		if err != nil {
			return failedQuery(name, how, err)
		}
		return nil
	})
}

// pageBytes is the size of a page of SQLite by default.
const pageBytes = 4096

// openNew opens an empty file as a database of at most most bytes; 0: any number. It needs no
// journal: an incomplete file is removed. It needs no lock of SQLite: safefs.NewFile has one.
func openNew(path string, most int64) (*sql.DB, error) {
	pragmas := []string{"journal_mode(OFF)", "synchronous(OFF)", "cache_size(-8192)", "locking_mode(EXCLUSIVE)"}
	if most > 0 {
		pragmas = append(pragmas, fmt.Sprintf("max_page_count(%d)", max(most/pageBytes, 1)))
	}
	name := url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: url.Values{"_pragma": pragmas, "nolock": {"1"}}.Encode()}
	db, err := sql.Open("sqlite", name.String())
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// inTransaction calls do in a transaction. If ctx is canceled, the next statement of do fails, and
// the error is that of ctx. The context of do cannot be canceled: for one that can, the driver
// starts a goroutine at each statement, which takes longer than the insertion of a row.
func inTransaction(ctx context.Context, db *sql.DB, do func(context.Context, *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err = do(context.WithoutCancel(ctx), tx); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		// The rollback of the driver also closes prepared statements: their error names no context.
		return cmp.Or(ctx.Err(), err)
	}
	return nil
}

// failedQuery returns an error of this module as it is, and wraps one of the database. SQLite has
// one code for a database at its limit and for a full disk.
func failedQuery(name string, how Options, err error) error {
	if kinded, is := errors.AsType[*errdefs.Error](err); is {
		return kinded
	}
	if how.MostBytes > 0 && databaseKind(err) == errdefs.Exhausted {
		return tooLarge(how.MostBytes)
	}
	return errdefs.New(databaseKind(err), "export to %s: %w", vpath.Quote(name), err)
}

// databaseKind is the kind of an error of the database.
func databaseKind(err error) errdefs.Kind {
	if e, is := errors.AsType[*sqlite.Error](err); is && e.Code()&0xff == codeFull {
		return errdefs.Exhausted
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errdefs.Canceled
	}
	return errdefs.Internal
}

// codeFull is SQLITE_FULL (sqlite3.h).
const codeFull = 13

// agentfsWriter writes one database.
type agentfsWriter struct {
	ctx    context.Context
	d      *delta
	tx     *sql.Tx
	source string // Options.Source
	chunk  *sql.Stmt
	inodes map[vpath.Path]int64 // of directories
	links  map[vpath.Path]int64 // of files with several names, by the first
}

func (w *agentfsWriter) write(s *record.Sandbox) error {
	r := s.Record()
	if _, err := w.tx.ExecContext(w.ctx, agentfsSchema); err != nil {
		return err
	}
	var err error
	if w.chunk, err = w.tx.PrepareContext(w.ctx, "INSERT INTO fs_data VALUES (?, ?, ?)"); err != nil {
		return err
	}
	defer w.chunk.Close()
	steps := []func() error{
		func() error { return w.configure(&r) },
		w.root,
		w.entries,
		func() error { return w.toolCalls(s) },
		func() error { return w.keyValues(s) },
		func() error { return fillTables(w.ctx, w.tx, "agentfense_", w.d, s) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *agentfsWriter) exec(statement string, args ...any) error {
	_, err := w.tx.ExecContext(w.ctx, statement, args...)
	return err
}

func (w *agentfsWriter) configure(r *record.Record) error {
	source := cmp.Or(w.source, string(r.Source.Path))
	meta := map[string]string{
		"format": "1", "sandbox": r.Name, "sandbox_id": string(r.ID), "created_at": r.CreatedAt.UTC().Format(time.RFC3339Nano),
		"policy": string(encode(r.Rules)), "source": vpath.Escape(source),
	}
	if w.source == "" {
		meta["source_dev"], meta["source_ino"] = strconv.FormatUint(r.Source.Dev, 10), strconv.FormatUint(r.Source.Ino, 10)
	}
	for key, value := range meta {
		if err := w.exec("INSERT INTO agentfense_meta VALUES (?, ?)", key, value); err != nil {
			return err
		}
	}
	if err := w.exec("INSERT INTO fs_config VALUES ('chunk_size', ?), ('schema_version', '0.4')", strconv.Itoa(chunkBytes)); err != nil {
		return err
	}
	return w.exec("INSERT INTO fs_overlay_config VALUES ('base_path', ?)", source)
}

func (w *agentfsWriter) root() error {
	i, err := w.d.work.Stack.Lookup(vpath.Root)
	if err != nil {
		return err
	}
	w.inodes[vpath.Root] = rootInode
	_, err = w.inode(&i, 1)
	return err
}

func (w *agentfsWriter) entries() error {
	names := map[vpath.Path]int64{} // of files with several names
	for i := range w.d.entries {
		if first := w.d.entries[i].linkOf; first != "" {
			names[first]++
		}
	}
	for i := range w.d.entries {
		e := &w.d.entries[i]
		err := checkText(e)
		switch {
		case err != nil:
		case e.path.IsRoot(): // it is there
		case e.deleted:
			err = w.exec("INSERT INTO fs_whiteout VALUES (?, ?, ?)", string(e.path), string(e.path.Dir()), time.Now().Unix())
		default:
			err = w.entry(e, names[e.path]+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses a name that the programs of AgentFS cannot read.
func checkText(e *entry) error {
	if utf8.ValidString(string(e.path)) && utf8.ValidString(e.target) {
		return nil
	}
	return errdefs.New(errdefs.Unsupported, "export %s: its path or the target of the link is not UTF-8, which agentfs cannot read: rename it, or use --format tar", e.path)
}

// dir returns the inode of a directory of the tree. A directory that has none is one of the
// source in which something changed.
func (w *agentfsWriter) dir(p vpath.Path) (int64, error) {
	if ino, ok := w.inodes[p]; ok {
		return ino, nil
	}
	parent, err := w.dir(p.Dir())
	if err != nil {
		return 0, err
	}
	i, err := w.d.work.Stack.Lookup(p)
	if err != nil {
		return 0, err
	}
	ino, err := w.inode(&i, 1)
	if err == nil {
		w.inodes[p] = ino
		err = w.name(p, parent, ino)
	}
	return ino, err
}

func (w *agentfsWriter) entry(e *entry, names int64) error {
	parent, err := w.dir(e.path.Dir())
	if err != nil {
		return err
	}
	if ino, ok := w.links[e.linkOf]; ok {
		return w.name(e.path, parent, ino)
	}
	ino, err := w.inode(&e.info, names)
	if err != nil {
		return err
	}
	if err := w.name(e.path, parent, ino); err != nil {
		return err
	}
	if e.baseIno != 0 {
		if err := w.exec("INSERT INTO fs_origin VALUES (?, ?)", ino, int64(e.baseIno)); err != nil {
			return err
		}
	}
	if names > 1 {
		w.links[e.path] = ino
	}
	switch e.info.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		w.inodes[e.path] = ino
	case unix.S_IFLNK:
		return w.exec("INSERT INTO fs_symlink VALUES (?, ?)", ino, e.target)
	case unix.S_IFREG:
		return w.content(e, ino)
	}
	return nil
}

func (w *agentfsWriter) name(p vpath.Path, parent, ino int64) error {
	return w.exec("INSERT INTO fs_dentry (name, parent_ino, ino) VALUES (?, ?, ?)", p.Base(), parent, ino)
}

// inode adds an inode. A regular file has its size from content.
func (w *agentfsWriter) inode(i *layer.Info, names int64) (int64, error) {
	size := int64(0)
	if i.Mode&unix.S_IFMT == unix.S_IFLNK {
		size = i.Size
	}
	result, err := w.tx.ExecContext(w.ctx, `INSERT INTO fs_inode (mode, nlink, uid, gid, size, atime, mtime, ctime, atime_nsec, mtime_nsec, ctime_nsec)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, i.Mode&(unix.S_IFMT|0o1777), names, os.Getuid(), os.Getgid(), size,
		i.Atime.Sec, i.Mtime.Sec, i.Ctime.Sec, i.Atime.Nsec, i.Mtime.Nsec, i.Ctime.Nsec)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// content stores a file in chunks. A chunk that lies in a hole is not stored.
func (w *agentfsWriter) content(e *entry, ino int64) error {
	f, size, err := w.d.open(e)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := w.exec("UPDATE fs_inode SET size = ? WHERE ino = ?", size, ino); err != nil {
		return err
	}
	buffer := make([]byte, 64*chunkBytes)
	for at := int64(0); at < size; {
		var end int64
		if at, end, err = nextData(f, at, size); err != nil || at == size {
			return err
		}
		part := buffer[:min(int64(len(buffer)), end-at)]
		n, err := f.ReadAt(part, at)
		if n < len(part) {
			if err == nil || errors.Is(err, io.EOF) {
				err = errdefs.New(errdefs.Unavailable, "export %s: a command shortened the file meanwhile: try again", e.path)
			}
			return err
		}
		for from := 0; from < n; from += chunkBytes {
			if _, err := w.chunk.ExecContext(w.ctx, ino, (at+int64(from))/chunkBytes, part[from:min(from+chunkBytes, n)]); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return nil
}

// nextData returns the chunks from at on that have data: the beginning of the first, and the end of
// the last before a hole. Both are size if only a hole follows.
func nextData(f *os.File, at, size int64) (from, to int64, err error) {
	from, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP): // it knows no holes
		return at, size, nil
	case err != nil:
		return 0, 0, err
	}
	if from >= size { // the file has grown
		return size, size, nil
	}
	if to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
		return 0, 0, err
	}
	to = (to + chunkBytes - 1) / chunkBytes * chunkBytes
	return from - from%chunkBytes, min(to, size), nil
}
