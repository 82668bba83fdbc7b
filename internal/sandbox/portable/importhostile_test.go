package portable_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/portable"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// addFile and addDir add an entry to the root directory as inode 50.
const (
	addFile = `INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime) VALUES (50, 33188, 1, 5, 0, 0, 0);
INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('file', 1, 50); INSERT INTO fs_data VALUES (50, 0, x'68656c6c6f');`
	addDir = `INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime) VALUES (50, 16877, 2, 0, 0, 0);
INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('dir', 1, 50);`
)

var hostile = map[string]struct{ statements, want string }{
	"many names far down": {`CREATE TABLE n AS WITH RECURSIVE r(n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM r WHERE n < 60000) SELECT n FROM r;
INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime) SELECT n, iif(n < 160, 16877, 33188), 1, 0, 0, 0 FROM n;
INSERT INTO fs_dentry (name, parent_ino, ino) SELECT iif(n < 160, hex(zeroblob(100)), n), iif(n = 100, 1, min(n - 1, 159)), n FROM n`, `all paths together are longer than 512 MiB`},
	"a name that goes up":          {addFile + `UPDATE fs_dentry SET name = '..'`, `name ".." is not allowed`},
	"a name that is the directory": {addFile + `UPDATE fs_dentry SET name = '.'`, `name "." is not allowed`},
	"an empty name":                {addFile + `UPDATE fs_dentry SET name = ''`, `name "" is not allowed`},
	"an absolute name":             {addFile + `UPDATE fs_dentry SET name = '/etc/passwd'`, `contains a slash or a NUL`},
	"a name with ways up":          {addFile + `UPDATE fs_dentry SET name = '../../x'`, `contains a slash or a NUL`},
	"a name with NUL":              {addFile + `UPDATE fs_dentry SET name = CAST(x'610062' AS TEXT)`, `contains a slash or a NUL`},
	"a name of an own entry":       {addFile + `UPDATE fs_dentry SET name = CAST(x'0061' AS TEXT)`, `contains a slash or a NUL`},
	"a long name":                  {addFile + `UPDATE fs_dentry SET name = hex(zeroblob(200))`, `is longer than 255`},
	"a name twice":                 {addFile + `DROP TABLE fs_dentry; CREATE TABLE fs_dentry (name, parent_ino, ino); INSERT INTO fs_dentry VALUES ('f', 1, 50), ('f', 1, 50)`, `"f" occurs twice in directory 1`},
	"a name without an inode":      {addFile + `DELETE FROM fs_inode WHERE ino = 50`, `inode 50 or its directory 1 does not exist`},
	"a name in no directory":       {addFile + `UPDATE fs_dentry SET parent_ino = 77`, `inode 50 or its directory 77 does not exist`},
	"a name in a file":             {addFile + `INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('x', 50, 50)`, `inode 50 is not a directory`},
	"the root as a child":          {addDir + `INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('x', 50, 1)`, `names the root directory`},
	"a directory with two names":   {addDir + `INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('x', 1, 50)`, `directory 50 has two names`},
	"a directory in itself":        {addDir + `UPDATE fs_dentry SET parent_ino = 50`, `not below the root`},
	"a circle of directories": {addDir + `INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime) VALUES (51, 16877, 2, 0, 0, 0);
UPDATE fs_dentry SET parent_ino = 51; INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('x', 50, 51)`, `2 entries are in directories that are not below the root`},
	"a second root":                 {`INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime) VALUES (50, 16877, 2, 0, 0, 0)`, `inode 50: the directory has no name`},
	"no root":                       {`DELETE FROM fs_inode`, `the root directory is missing`},
	"a root that is a file":         {`UPDATE fs_inode SET mode = 33188`, `the root directory is missing`},
	"too many names":                {addFile + `UPDATE fs_inode SET nlink = 2 WHERE ino = 50`, `inode 50: it has 1 names and nlink 2`},
	"too few names":                 {addFile + `INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('other', 1, 50)`, `inode 50: it has 2 names and nlink 1`},
	"an enormous size":              {addFile + `UPDATE fs_inode SET size = 1 << 62`, `size 4611686018427387904 is out of range`},
	"a negative size":               {addFile + `UPDATE fs_inode SET size = -1 WHERE ino = 50`, `size -1 is out of range`},
	"a size that is text":           {addFile + `UPDATE fs_inode SET size = 'x' WHERE ino = 50`, `not a usable SQLite database`},
	"a mode with more bits":         {addFile + `UPDATE fs_inode SET mode = 1 << 40 WHERE ino = 50`, `mode 1099511627776 is out of range`},
	"nanoseconds of an hour":        {addFile + `UPDATE fs_inode SET mtime_nsec = 3600000000000`, `nanoseconds are out of range`},
	"chunks of no size":             {addFile + `UPDATE fs_config SET value = '0' WHERE key = 'chunk_size'`, `chunk_size is "0"`},
	"chunks of a huge size":         {addFile + `UPDATE fs_config SET value = '9223372036854775807' WHERE key = 'chunk_size'`, `chunk_size is "9223372036854775807"`},
	"no size of chunks":             {addFile + `DELETE FROM fs_config`, `chunk_size is ""`},
	"a chunk with a negative place": {addFile + `UPDATE fs_data SET chunk_index = -1`, `chunk -1 of inode 50 is negative`},
	"a chunk far away":              {addFile + `UPDATE fs_data SET chunk_index = 9223372036854775807`, `is beyond the size of the file`},
	"a chunk behind the end":        {addFile + `UPDATE fs_inode SET size = 2 WHERE ino = 50`, `is beyond the size of the file`},
	"a chunk that is too long":      {addFile + `UPDATE fs_inode SET size = 9999; UPDATE fs_data SET data = zeroblob(5000)`, `more than chunk_size 4096`},
	"a chunk of 1 GB":               {addFile + `UPDATE fs_data SET data = zeroblob(100000000)`, `too big`},
	"a chunk twice":                 {addFile + `DROP TABLE fs_data; CREATE TABLE fs_data (ino, chunk_index, data); INSERT INTO fs_data VALUES (50, 0, x'61'), (50, 0, x'62')`, `chunk 0 of inode 50 is negative or occurs twice`},
	"content of a directory":        {addDir + `INSERT INTO fs_data VALUES (50, 0, x'61')`, `inode 50 is not a regular file`},
	"content of nothing":            {`INSERT INTO fs_data VALUES (50, 0, x'61')`, `inode 50 is not a regular file`},
	"a file that is also a link":    {addFile + `INSERT INTO fs_symlink VALUES (50, '/etc')`, `inode 50 is not a symbolic link`},
	"a link without a target":       {addFile + `DELETE FROM fs_data; UPDATE fs_inode SET mode = 41471 WHERE ino = 50`, `the symbolic link has no target`},
	"a link with a NUL":             {addFile + `UPDATE fs_inode SET mode = 41471 WHERE ino = 50; INSERT INTO fs_symlink VALUES (50, CAST(x'610062' AS TEXT))`, `is empty, too long, or has a NUL`},
	"a link with a long target":     {addFile + `UPDATE fs_inode SET mode = 41471 WHERE ino = 50; INSERT INTO fs_symlink VALUES (50, hex(zeroblob(3000)))`, `is empty, too long, or has a NUL`},
	"a deletion outside":            {`INSERT INTO fs_whiteout VALUES ('/../x', '', 0)`, `fs_whiteout: path`},
	"a deletion of a relative path": {`INSERT INTO fs_whiteout VALUES ('x', '', 0)`, `want an absolute path`},
	"a deletion of the root":        {`INSERT INTO fs_whiteout VALUES ('/', '', 0)`, `and not the root`},
	"a trigger":                     {`CREATE TRIGGER t AFTER INSERT ON fs_data BEGIN SELECT 1; END`, `the "trigger" "t"`},
	"a view for a table":            {`DROP TABLE fs_data; CREATE VIEW fs_data AS SELECT 50 AS ino, 0 AS chunk_index, zeroblob(1000000000) AS data`, `the "view" "fs_data"`},
	"a view that says it is a table": {`PRAGMA writable_schema = 1; DROP TABLE fs_data; CREATE VIEW fs_data AS WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r) SELECT 50 AS ino, n AS chunk_index, x'61' AS data FROM r;
UPDATE sqlite_schema SET type = 'table' WHERE name = 'fs_data'`, `malformed database schema (fs_data)`},
	"a trigger that says it is a table": {`CREATE TRIGGER t AFTER INSERT ON fs_data BEGIN SELECT 1; END; PRAGMA writable_schema = 1; UPDATE sqlite_schema SET type = 'table' WHERE name = 't'`, `malformed database schema (t)`},
	"a virtual table":                   {`CREATE VIRTUAL TABLE v USING fts5(x)`, `is virtual or has a CHECK`},
	"a check":                           {`CREATE TABLE c (x CHECK (randomblob(x) IS NOT NULL))`, `is virtual or has a CHECK`},
	"a generated column":                {`CREATE TABLE g (x, y AS (zeroblob(1000000000)) STORED)`, `column "y" of table "g" is generated`},
	"a table that is missing":           {`DROP TABLE fs_symlink`, `table fs_symlink has no column ino`},
	"an older version":                  {`ALTER TABLE fs_inode DROP COLUMN mtime_nsec`, `agentfs migrate FILE`},
	"a version of the future":           {`UPDATE fs_config SET value = '0.9' WHERE key = 'schema_version'`, `only 0.4 is known`},
	"a device":                          {addFile + `DELETE FROM fs_data; UPDATE fs_inode SET mode = 24576 | 420 WHERE ino = 50`, `a sandbox has no devices`},
	"an unknown type":                   {addFile + `DELETE FROM fs_data; UPDATE fs_inode SET mode = 420 WHERE ino = 50`, `a sandbox has no devices`},
	"a hidden file":                     {addFile + `UPDATE fs_dentry SET name = 'classified'`, `the policy does not let the sandbox change it`},
	"the deletion of a hidden file":     {`INSERT INTO fs_whiteout VALUES ('/classified', '', 0)`, `the policy does not let the sandbox change it`},
	"a file through a link":             {addDir + `UPDATE fs_dentry SET name = 'link'; UPDATE fs_inode SET mode = 41471 WHERE ino = 50; INSERT INTO fs_symlink VALUES (50, '/tmp'); INSERT INTO fs_inode (ino, mode, nlink, atime, mtime, ctime) VALUES (51, 33188, 1, 0, 0, 0); INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('x', 50, 51)`, `inode 50 is not a directory`},
}

// A database that is not consistent, or wants what the policy forbids, is refused with what is
// wrong, and no sandbox appears.
func TestHostileDatabases(t *testing.T) {
	box := newSandbox(t, map[string]string{"a": "old"}, func(*layer.Stack) {})
	clean := filepath.Join(t.TempDir(), "clean.db")
	_, err := portable.AgentFS(context.Background(), box, clean, portable.Options{})
	must(t, err)
	content, err := os.ReadFile(clean)
	must(t, err)
	for name, c := range hostile {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "file.db")
			must(t, os.WriteFile(file, content, 0o600))
			execute(t, file, c.statements)
			_, _, err := importTo(box, file, "bad", rules, false)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got the error %v, want one with %q", err, c.want)
			}
			if kind := errdefs.KindOf(err); kind != errdefs.Invalid && kind != errdefs.Denied {
				t.Errorf("kind %v", kind)
			}
			if _, err := box.Home.Open("bad"); !errdefs.Is(err, errdefs.NotFound) {
				t.Errorf("a sandbox remains: %v", err)
			}
		})
	}
}

// With partial, the rest is imported, and what the policy refuses is listed.
func TestAPartialImport(t *testing.T) {
	box := newSandbox(t, map[string]string{"gonedir/file": "x", "gonedir/" + secret: secret, "listed": secret}, func(*layer.Stack) {})
	file := filepath.Join(t.TempDir(), "file.db")
	_, err := portable.AgentFS(context.Background(), box, file, portable.Options{})
	must(t, err)
	execute(t, file, addFile+`INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime) VALUES (51, 35309, 2, 1099511627776, 0, 7, 0);
INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('listed', 1, 51), ('sparse', 1, 51);
INSERT INTO fs_whiteout VALUES ('/gonedir', '/', 0), ('/missing/below', '', 0); INSERT INTO kv_store (key, value) VALUES ('k', '1')`)
	made, result, err := importTo(box, file, "made", rules, true)
	must(t, err)
	if result.Entries != 2 || result.Deletions != 1 || len(result.Skipped) != 1 || result.Skipped[0].Path != "/listed" {
		t.Errorf("result %+v", result)
	}
	source, err := made.Record().Source.Open()
	must(t, err)
	defer source.Close()
	stack, err := layer.Open(layer.Options{Source: source, Dir: made.LayersDir(), ReadOnly: true})
	must(t, err)
	defer stack.Close()
	i, err := stack.Lookup("/sparse")
	must(t, err)
	if i.Mode != 0o100755 || i.Size != 1<<40 || i.Blocks > 100 || i.Mtime.Sec != 7 { // without setuid
		t.Errorf("the sparse file: %+v", i)
	}
	if got := contentOf(t, stack, "/file", 5); got != "hello" {
		t.Errorf("content %q", got)
	}
	if _, err := stack.Lookup("/gonedir"); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("the deleted directory: %v", err)
	}
}

// The log of another database is found, and one that belongs to the database is read.
func TestAWriteAheadLog(t *testing.T) {
	box := newSandbox(t, nil, func(*layer.Stack) {})
	dir := t.TempDir()
	make := func(name, statements string) string {
		file := filepath.Join(dir, name)
		_, err := portable.AgentFS(context.Background(), box, file, portable.Options{})
		must(t, err)
		db := openDatabase(t, file)
		_, err = db.Exec("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;" + statements)
		must(t, err)
		copied := filepath.Join(dir, name+".copy") // closing the database would empty the log
		for _, suffix := range []string{"", "-wal"} {
			content, err := os.ReadFile(file + suffix)
			must(t, err)
			must(t, os.WriteFile(copied+suffix, content, 0o600))
		}
		must(t, db.Close())
		return copied
	}
	good := make("good", addFile)
	_, result, err := importTo(box, good, "good", []policy.Rule{{Pattern: "**", Permission: policy.Write}}, false)
	must(t, err)
	if result.Entries != 1 {
		t.Errorf("imported %+v", result)
	}
	other := make("other", strings.Repeat("CREATE TABLE t(x); DROP TABLE t;", 20)+`CREATE TABLE big(x PRIMARY KEY); INSERT INTO big SELECT randomblob(3000) FROM fs_config, fs_config a, fs_config b; DELETE FROM fs_inode`)
	must(t, os.Rename(other+"-wal", good+"-wal"))
	if _, err := portable.OpenImport(context.Background(), good); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("with another log: %v", err)
	}
	must(t, os.WriteFile(good+"-journal", []byte("x"), 0o600))
	if _, err := portable.OpenImport(context.Background(), good); err == nil || !strings.Contains(err.Error(), "unfinished transaction") {
		t.Errorf("with a journal: %v", err)
	}
}

// Damage is found also in a table that an import does not read.
func TestADamagedPage(t *testing.T) {
	box := newSandbox(t, nil, func(*layer.Stack) {})
	file := filepath.Join(t.TempDir(), "file.db")
	_, err := portable.AgentFS(context.Background(), box, file, portable.Options{})
	must(t, err)
	var page, size int64
	db := openDatabase(t, file)
	must(t, db.QueryRow("SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = 'agentfense_changes'").Scan(&page, &size))
	must(t, db.Close())
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte(strings.Repeat("\xff", int(size))), (page-1)*size)
	must(t, err)
	if _, err := portable.OpenImport(context.Background(), file); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("got the error %v", err)
	}
}

// What is no database, or a damaged one, is refused in bounded time and never crashes.
func FuzzOpenImport(f *testing.F) {
	box := newSandbox(f, map[string]string{"a": "old"}, func(s *layer.Stack) {
		_, err := s.Unlink("/a", false)
		must(f, err)
		_, err = s.Symlink("x", "/link")
		must(f, err)
	})
	clean := filepath.Join(f.TempDir(), "clean.db")
	_, err := portable.AgentFS(context.Background(), box, clean, portable.Options{})
	must(f, err)
	content, err := os.ReadFile(clean)
	must(f, err)
	f.Add(content)
	f.Add(content[:len(content)/2])
	f.Add([]byte("no database"))
	f.Add([]byte{})
	all := []policy.Rule{{Pattern: "**", Permission: policy.Write}}
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(t.TempDir(), "file.db")
		must(t, os.WriteFile(file, content, 0o600))
		made, _, err := importTo(box, file, "fuzzed", all, true)
		if err == nil {
			must(t, made.Home.Remove("fuzzed"))
			return
		}
		if _, err := box.Home.Open("fuzzed"); !errdefs.Is(err, errdefs.NotFound) {
			t.Errorf("a sandbox remains: %v", err)
		}
	})
}
