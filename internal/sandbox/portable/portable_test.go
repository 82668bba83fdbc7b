package portable_test

import (
	"archive/tar"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/portable"
	"github.com/agentfense/agentfense/internal/sandbox/portable/query"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// secret is the content of what no export may hold, and part of names that none may name.
const secret = "classified"

// The test binary plays the process of a query.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == query.Verb {
		os.Exit(query.Main())
	}
	os.Exit(m.Run())
}

var rules = []policy.Rule{
	{Pattern: "**", Permission: policy.Write},
	{Pattern: "**/classified*", Permission: policy.None, Priority: 1, Own: true},
	{Pattern: "/listed", Type: policy.File, Permission: policy.View, Priority: 1},
	{Pattern: "/masked.env", Type: policy.File, Permission: policy.Read, Priority: 1, Transform: policy.Transform{Redact: policy.Env}},
}

// newSandbox makes a sandbox on files, lets do change its layers without a policy, and then gives
// it the rules.
func newSandbox(t testing.TB, files map[string]string, do func(*layer.Stack)) *record.Sandbox {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	home, err := record.OpenHomeAt(filepath.Join(t.TempDir(), "home"))
	must(t, err)
	source, err := home.ResolveSource(dir)
	must(t, err)
	box, err := home.Create(record.Record{
		Name: "fix", Source: source, Workspace: dir, Runtime: "bwrap", Net: "none", Rules: rules,
	})
	must(t, err)
	handle, err := source.Open()
	must(t, err)
	defer handle.Close()
	stack, err := layer.Open(layer.Options{Source: handle, Dir: box.LayersDir()})
	must(t, err)
	do(stack)
	must(t, stack.Close())
	return box
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write makes or replaces the content of a file.
func write(t *testing.T, s *layer.Stack, p vpath.Path, content string) {
	t.Helper()
	f, _, err := s.Open(p, true)
	if errdefs.Is(err, errdefs.NotFound) {
		f, _, err = s.Create(p, 0o640)
	}
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte(content), 0)
	must(t, err)
}

// changed is a sandbox with a change of each kind.
func changed(t *testing.T) *record.Sandbox {
	t.Helper()
	return newSandbox(t, map[string]string{
		"edited": "old", "gone": "x", "gonedir/file": "x", "gonedir/" + secret: secret, "keep/below": "x",
		"listed": secret, "masked.env": "A=" + secret, secret + "-copied": secret,
	}, func(s *layer.Stack) {
		write(t, s, "/edited", "new")
		write(t, s, "/keep/below", "new")
		unlink := func(p vpath.Path) { _, err := s.Unlink(p, false); must(t, err) }
		unlink("/gone")
		unlink("/gonedir/file")
		must(t, s.Rmdir("/gonedir", func(name string) bool { return name != secret }))
		_, err := s.Mkdir("/made", 0o750)
		must(t, err)
		write(t, s, "/made/file", strings.Repeat("0123456789", 1000))
		_, err = s.Link("/made/file", "/made/other")
		must(t, err)
		_, err = s.Symlink("../edited", "/made/link")
		must(t, err)
		write(t, s, "/made/sparse", "begin")
		f, _, err := s.Open("/made/sparse", true)
		must(t, err)
		_, err = f.WriteAt([]byte("end"), 1<<20)
		must(t, err)
		must(t, f.Close())
		// What the rules of the sandbox do not show: copies, and entries under hidden names.
		for _, p := range []vpath.Path{"/listed", "/masked.env", vpath.Root.Child(secret + "-copied")} {
			_, err := s.CopyUp(p)
			must(t, err)
			f, _, err := s.Open(p, true)
			must(t, err)
			_, err = f.WriteAt([]byte(secret+secret), 0)
			must(t, err)
			must(t, f.Close())
		}
		write(t, s, vpath.Root.Child(vpath.OwnName(secret+"-own")), secret)
	})
}

type exporter = func(context.Context, *record.Sandbox, string, portable.Options) (portable.Result, error)

var formats = map[string]exporter{"agentfs": portable.AgentFS, "tar": portable.Tar, "oci": portable.OCI}

// No format has a content that the view does not show, or the name of a hidden file that went with
// its directory.
func TestNoFormatHoldsWhatThePolicyHides(t *testing.T) {
	box := changed(t)
	for name, export := range formats {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out")
			result, err := export(t.Context(), box, file, portable.Options{})
			must(t, err)
			content, err := os.ReadFile(file)
			must(t, err)
			// The policy is in the database, and has the pattern.
			content = bytes.ReplaceAll(content, []byte("**/"+secret), nil)
			if at := bytes.Index(content, []byte(secret)); at >= 0 {
				t.Errorf("it has %q", content[max(at-80, 0):min(at+80, len(content))])
			}
			var skipped []string
			for _, s := range result.Skipped {
				skipped = append(skipped, s.Path.String())
			}
			slices.Sort(skipped)
			if diff := cmp.Diff([]string{"/classified-copied", "/classified-own", "/listed", "/masked.env"}, skipped); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
			if result.Deletions != 2 {
				t.Errorf("%d deletions, want 2", result.Deletions)
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v, want mode 0600", info.Mode(), err)
			}
		})
	}
}

// A link that was made under another policy has the permission of its strictest name.
func TestNoFormatHoldsALinkOfWhatThePolicyHides(t *testing.T) {
	box := newSandbox(t, map[string]string{secret: secret + secret, "masked.env": "K=" + secret, "open": "shown"}, func(s *layer.Stack) {
		for from, to := range map[vpath.Path]vpath.Path{vpath.Root.Child(secret): "/a", "/masked.env": "/b", "/open": "/c"} {
			_, err := s.Link(from, to)
			must(t, err)
		}
	})
	all := maps.Clone(formats)
	all["patch"] = portable.Patch
	for name, export := range all {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out")
			_, err := export(t.Context(), box, file, portable.Options{})
			must(t, err)
			content, err := os.ReadFile(file)
			must(t, err)
			content = bytes.ReplaceAll(content, []byte("**/"+secret), nil)
			if bytes.Contains(content, []byte(secret)) || name != "oci" && !bytes.Contains(content, []byte("shown")) {
				t.Errorf("it has %q", content)
			}
		})
	}
}

func TestTarHoldsTheFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	_, err := portable.Tar(t.Context(), changed(t), file, portable.Options{})
	must(t, err)
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	var got []string
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		content, err := io.ReadAll(r)
		must(t, err)
		got = append(got, fmt.Sprintf("%c %s %o %d %s", h.Typeflag, h.Name, h.Mode, len(content), h.Linkname))
	}
	want := []string{
		"0 edited 644 3 ", "0 keep/below 644 3 ", "5 made/ 750 0 ", "0 made/file 640 10000 ", "2 made/link 777 0 ../edited",
		"1 made/other 640 0 made/file", "0 made/sparse 640 1048579 ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAgentFSHoldsTheDelta(t *testing.T) {
	box := changed(t)
	must(t, box.Log(audit.CommandExecuted{Argv: []audit.Text{"make", "<a>"}, ExitCode: 2}))
	file := filepath.Join(t.TempDir(), "out")
	_, err := portable.AgentFS(t.Context(), box, file, portable.Options{})
	must(t, err)
	db, err := sql.Open("sqlite", file)
	must(t, err)
	defer db.Close()
	// Each inode but the root has as many names as its nlink, and each name an inode and a parent.
	for _, q := range []struct{ query, want string }{
		{`PRAGMA integrity_check`, "ok"},
		{`SELECT count(*) FROM fs_inode i WHERE ino <> 1 AND nlink <> (SELECT count(*) FROM fs_dentry d WHERE d.ino = i.ino)`, "0"},
		{`SELECT count(*) FROM fs_dentry WHERE ino NOT IN (SELECT ino FROM fs_inode) OR parent_ino NOT IN (SELECT ino FROM fs_inode WHERE mode & 61440 = 16384)`, "0"},
		{`SELECT group_concat(path || ' ' || parent_path, ',') FROM (SELECT * FROM fs_whiteout ORDER BY path)`, "/gone /,/gonedir /"},
		{
			`SELECT group_concat(name || ' ' || printf('%o', mode) || ' ' || nlink || ' ' || size, ',') FROM (SELECT * FROM fs_dentry JOIN fs_inode USING (ino) ORDER BY name)`,
			"below 100644 1 3,edited 100644 1 3,file 100640 2 10000,keep 40755 1 0,link 120777 1 9,made 40750 1 0,other 100640 2 10000,sparse 100640 1 1048579",
		},
		{`SELECT target FROM fs_symlink`, "../edited"},
		{
			`SELECT group_concat(chunk_index || ':' || length(data), ',') FROM (SELECT * FROM fs_data JOIN fs_dentry USING (ino) WHERE name IN ('other', 'sparse') ORDER BY name, chunk_index)`,
			"0:4096,1:4096,2:1808,0:4096,256:3",
		},
		{`SELECT parameters || error || status FROM tool_calls`, `{"argv":["make","<a>"],"dir":""}{"exit_code":2,"signal":""}error`},
		{`SELECT count(*) FROM fs_origin`, "2"},
		{`SELECT group_concat(status || ' ' || path, ',') FROM agentfense_changes WHERE path NOT LIKE '/made%'`, "modified /edited,deleted /gone,deleted /gonedir,modified /keep/below"},
	} {
		var got string
		if err := db.QueryRowContext(t.Context(), q.query).Scan(&got); err != nil || got != q.want {
			t.Errorf("%s = %q, %v, want %q", q.query, got, err, q.want)
		}
	}
}

// A file is complete or absent, and never replaces another one.
func TestAFileIsWholeOrAbsent(t *testing.T) {
	box := changed(t)
	for name, export := range formats {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			canceled, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := export(canceled, box, filepath.Join(dir, "out"), portable.Options{}); err == nil {
				t.Error("a canceled export succeeded")
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("a canceled export left %v, %v", left, err)
			}
			other := filepath.Join(dir, "other")
			must(t, os.WriteFile(other, []byte("mine"), 0o644))
			if _, err := export(t.Context(), box, other, portable.Options{}); !errdefs.Is(err, errdefs.Exists) {
				t.Errorf("over a file: %v, want Exists", err)
			}
			if content, err := os.ReadFile(other); err != nil || string(content) != "mine" {
				t.Errorf("the file has %q, %v", content, err)
			}
		})
	}
}

// A patch has the lines of files that the view shows, and no others.
func TestPatchHoldsWhatThePolicyShows(t *testing.T) {
	names := []string{"edited", "gone", "listed", "masked.env", secret + "-copied"}
	files := map[string]string{}
	for _, name := range names {
		files[name] = "A=" + secret + "\n"
	}
	files["edited"], files["gone"] = "old\n", "old\n"
	box := newSandbox(t, files, func(s *layer.Stack) {
		_, err := s.Unlink("/gone", false)
		must(t, err)
		_, err = s.Unlink("/listed", false)
		must(t, err)
		for _, name := range []string{"edited", "masked.env", secret + "-copied", vpath.OwnName(secret + "-own")} {
			write(t, s, vpath.Root.Child(name), "B="+secret[:3]+"\n"+"new\n")
		}
	})
	file := filepath.Join(t.TempDir(), "out")
	result, err := portable.Patch(t.Context(), box, file, portable.Options{})
	must(t, err)
	content, err := os.ReadFile(file)
	must(t, err)
	text := string(content)
	if strings.Contains(text, secret) || strings.Contains(text, "listed") || strings.Contains(text, "masked") {
		t.Errorf("it has what the policy hides:\n%s", text)
	}
	if !strings.Contains(text, "-old\n") || !strings.Contains(text, "+++ b/edited\n") || !strings.Contains(text, "deleted file mode 100644\n") {
		t.Errorf("it is without a change that the policy shows:\n%s", text)
	}
	if result.Entries != 1 || result.Deletions != 1 || len(result.Skipped) != 4 {
		t.Errorf("result %+v, want an entry, a deletion, and four left out", result)
	}
}

// What a format cannot hold is refused by name.
func TestUnfitNames(t *testing.T) {
	box := newSandbox(t, nil, func(s *layer.Stack) { write(t, s, "/.wh.a\xff", "x") })
	for name, want := range map[string]string{"agentfs": "UTF-8", "oci": ".wh.", "tar": ""} {
		_, err := formats[name](t.Context(), box, filepath.Join(t.TempDir(), "out"), portable.Options{})
		if want == "" {
			must(t, err)
		} else if !errdefs.Is(err, errdefs.Unsupported) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `/.wh.a\xff`) {
			t.Errorf("%s: %v, want Unsupported with the name and %s", name, err, want)
		}
	}
}

var bounds = query.Bounds{Rows: 3, Time: time.Minute, MemoryBytes: 64 << 20}

func TestQuery(t *testing.T) {
	box := changed(t)
	must(t, box.Log(audit.NetworkAllowed{Host: "a.example", Port: 443, Rule: "a.example", SentBytes: 5, ReceivedBytes: -1}))
	must(t, box.Log(audit.NetworkDenied{Host: "b\x1b.example", Reason: "no rule", Count: 2}))
	must(t, box.Log(audit.CommandExecuted{Argv: []audit.Text{"true"}, DurationMS: 7}))
	for statement, want := range map[string]query.Rows{
		"SELECT path FROM changes WHERE status = 'deleted' ORDER BY path": {Columns: []string{"path"}, Values: [][]any{{"/gone"}, {"/gonedir"}}},
		"select host, port, sent_bytes, received_bytes, count from network order by seq; -- x": {
			Columns: []string{"host", "port", "sent_bytes", "received_bytes", "count"},
			Values:  [][]any{{"a.example", int64(443), int64(5), nil, int64(1)}, {`b\x1b.example`, int64(0), nil, nil, int64(2)}},
		},
		"SELECT command, duration_ms FROM processes":                       {Columns: []string{"command", "duration_ms"}, Values: [][]any{{`["true"]`, int64(7)}}},
		"SELECT json_extract(record, '$.host') h FROM audit WHERE seq = 2": {Columns: []string{"h"}, Values: [][]any{{"a.example"}}},
		"VALUES (1), (2), (3), (4)":                                        {Columns: []string{"column1"}, Values: [][]any{{int64(1)}, {int64(2)}, {int64(3)}}, More: true},
	} {
		got, err := portable.Query(t.Context(), box, statement, bounds)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", statement, err, diff)
		}
	}
}

// A statement changes nothing, opens nothing and ends.
func TestQueryRefuses(t *testing.T) {
	box := changed(t)
	outside := filepath.Join(t.TempDir(), "outside.db")
	const endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM t) "
	for statement, want := range map[string]errdefs.Kind{
		"ATTACH '" + outside + "' AS o":                            errdefs.Invalid,
		"SELECT 1; ATTACH '" + outside + "' AS o":                  errdefs.Invalid,
		"SELECT 1 /* ; */; VACUUM INTO '" + outside + "'":          errdefs.Invalid,
		"SELECT '''' ; VACUUM INTO '" + outside + "'":              errdefs.Invalid,
		"SELECT 1 -- '\n; VACUUM INTO '" + outside + "'":           errdefs.Invalid,
		"VACUUM INTO '" + outside + "'":                            errdefs.Invalid,
		"PRAGMA query_only = 0":                                    errdefs.Invalid,
		"SELECT 1\x00; VACUUM":                                     errdefs.Invalid,
		"SELECT 'x":                                                errdefs.Invalid,
		"SELECT /* x":                                              errdefs.Invalid,
		"":                                                         errdefs.Invalid,
		"WITH a AS (SELECT 1) DELETE FROM changes":                 errdefs.Invalid,
		"WITH a AS (SELECT 1) INSERT INTO audit SELECT * FROM a":   errdefs.Invalid,
		"SELECT load_extension('" + outside + "')":                 errdefs.Invalid,
		"SELECT zeroblob(100000000)":                               errdefs.Invalid,
		"SELECT * FROM nothing":                                    errdefs.Invalid,
		endless + "SELECT zeroblob(100000) AS x FROM t ORDER BY x": errdefs.Exhausted,
		endless + "SELECT count(*) FROM t":                         errdefs.Deadline,
	} {
		limits := bounds
		if want == errdefs.Deadline {
			limits.Time = 100 * time.Millisecond
		}
		if rows, err := portable.Query(t.Context(), box, statement, limits); !errdefs.Is(err, want) || rows.Values != nil {
			t.Errorf("%s: %v, %v, want %v", statement, rows, err, want)
		}
	}
	large := bounds
	large.Rows, large.MemoryBytes = 1000, 1<<30
	if _, err := portable.Query(t.Context(), box, endless+"SELECT zeroblob(1000000) FROM t", large); !errdefs.Is(err, errdefs.Exhausted) {
		t.Errorf("a large result: %v, want Exhausted", err)
	}
	if _, err := os.Lstat(outside); !os.IsNotExist(err) {
		t.Errorf("a statement made a file: %v", err)
	}
}

func TestWhatAReviewDoesNotListIsNotCounted(t *testing.T) {
	box := newSandbox(t, map[string]string{"gone/a": "a", "gone/b": "b"}, func(s *layer.Stack) {
		for _, name := range []string{"a", "b"} {
			_, err := s.Unlink(vpath.Root.Child("gone").Child(name), false)
			must(t, err)
		}
		must(t, s.Rmdir("/gone", func(string) bool { return true }))
		for _, dir := range []vpath.Path{"/made", "/made/deep", "/empty"} {
			_, err := s.Mkdir(dir, 0o755)
			must(t, err)
		}
		write(t, s, "/made/deep/file", "x")
	})
	want := portable.Result{Entries: 2, Deletions: 1} // made/deep/file and empty; gone with what was in it
	for format, export := range formats {
		result, err := export(t.Context(), box, filepath.Join(t.TempDir(), "out"), portable.Options{})
		must(t, err)
		if result.Entries != want.Entries || result.Deletions != want.Deletions {
			t.Errorf("%s: exported %d and %d deletions, want %d and %d", format, result.Entries, result.Deletions, want.Entries, want.Deletions)
		}
	}
	file := filepath.Join(t.TempDir(), "out.db")
	_, err := portable.AgentFS(t.Context(), box, file, portable.Options{})
	must(t, err)
	_, result, err := importTo(box, file, "again", rules, false)
	must(t, err)
	if result.Entries != want.Entries || result.Deletions != want.Deletions {
		t.Errorf("imported %d and %d deletions, want %d and %d", result.Entries, result.Deletions, want.Entries, want.Deletions)
	}
}
