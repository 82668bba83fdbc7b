package codebase

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
)

func TestCodebasesSurviveTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codebases")
	s := openStore(t, dir, nil)
	c, err := s.Create(id.NewCodebase())
	must(t, err)
	put(t, c, "a/b", "12345")
	linked, err := s.Link(id.NewCodebase(), t.TempDir(), true)
	must(t, err)
	link, _ := linked.Linked()
	wantUsage(t, c, 1, 5)
	before := c.Usage()
	must(t, s.Close())

	again := openStore(t, dir, nil)
	ids, err := again.IDs()
	must(t, err)
	if len(ids) != 2 {
		t.Errorf("there are %v", ids)
	}
	c2, err := again.Get(c.ID())
	must(t, err)
	if got := c2.Usage(); got.FileCount != 1 || !got.UpdatedAt.Equal(before.UpdatedAt) {
		t.Errorf("got %+v, want %+v as it was noted", got, before)
	}
	linked2, err := again.Get(linked.ID())
	must(t, err)
	if got, is := linked2.Linked(); !is || got != link {
		t.Errorf("linked: %+v, %v, want %+v", got, is, link)
	}
	put(t, c2, "c", "1")
	wantUsage(t, c2, 2, 6)
	if _, err := os.Stat(filepath.Join(c2.path(), usageFile)); !os.IsNotExist(err) {
		t.Errorf("the note is there beside a change it does not know: %v", err)
	}
}

// What a process leaves that is killed: no note, things in staging, codebases
// half made and half deleted.
func TestOpenSweepsWhatACrashLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codebases")
	s := openStore(t, dir, nil)
	c, err := s.Create(id.NewCodebase())
	must(t, err)
	put(t, c, "f", "12345")
	u, err := c.Upload(path(t, "g"), 0, 0)
	must(t, err)
	_, err = u.Write([]byte("half"))
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(c.path(), stagingDir, "7", "removed"), 0o755))
	for _, name := range []string{makingPrefix + "cb_0000000000000000", gonePrefix + string(id.NewCodebase())} {
		must(t, os.MkdirAll(filepath.Join(dir, name, filesDir), 0o755))
	}
	s.letGo() // as the kernel does

	again := openStore(t, dir, nil)
	c2, err := again.Get(c.ID())
	must(t, err)
	wantUsage(t, c2, 1, 5)
	wantEmptyStaging(t, c2)
	names, err := again.names()
	must(t, err)
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			t.Errorf("%s is left", name)
		}
	}
}

func TestADamagedNoteIsNotBelieved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codebases")
	s := openStore(t, dir, nil)
	c, err := s.Create(id.NewCodebase())
	must(t, err)
	put(t, c, "f", "12345")
	must(t, s.Close())
	must(t, os.WriteFile(filepath.Join(dir, string(c.ID()), usageFile), []byte(`{"file_c`), 0o600))
	for range 2 {
		again := openStore(t, dir, nil)
		c, err := again.Get(c.ID())
		must(t, err)
		wantUsage(t, c, 1, 5)
		must(t, again.Close())
	}
}

func TestIDsOfNewCodebases(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "codebases"), nil)
	c, err := s.Create(id.NewCodebase())
	must(t, err)
	put(t, c, "f", "kept")
	_, err = s.Create(c.ID())
	wantKind(t, "an ID that is taken", err, errdefs.Exists)
	for _, key := range []ID{"", "x", "../cb_0123456789abcdef", "cb_0123456789abcdeF"} {
		_, err = s.Create(key)
		wantKind(t, "the ID "+string(key), err, errdefs.Invalid)
	}
	if content, err := download(c, path(t, "f")); err != nil || content != "kept" {
		t.Errorf("what has the ID: %q, %v", content, err)
	}
	wantEmptyStaging(t, c)
}

func TestOneServerAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codebases")
	s := openStore(t, dir, nil)
	_, err := Open(Options{Dir: dir})
	wantKind(t, "a second server", err, errdefs.Precondition)
	must(t, s.Close())
	must(t, s.Close())
	openStore(t, dir, nil)
}

func TestOpenRefusesADirectoryOfOthers(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777))
	_, err := Open(Options{Dir: dir})
	wantKind(t, "others may write", err, errdefs.Precondition)
}

func TestDelete(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codebases")
	s := openStore(t, dir, nil)
	c, err := s.Create(id.NewCodebase())
	must(t, err)
	put(t, c, "a/b", "12345")
	u, err := c.Upload(path(t, "f"), 0, 0)
	must(t, err)
	for _, key := range []ID{c.ID(), c.ID(), id.NewCodebase(), "../x", ""} {
		must(t, s.Delete(key))
	}
	_, err = u.Commit()
	wantKind(t, "an upload into what was deleted", err, errdefs.NotFound)
	_, err = upload(c, path(t, "f"), "", 0)
	wantKind(t, "a new upload", err, errdefs.NotFound)
	_, err = c.Source()
	wantKind(t, "its directory", err, errdefs.NotFound)
	for _, key := range []ID{c.ID(), id.NewCodebase(), "cb_", "..", "cb_ABCDEF0123456789", ID(lockFile)} {
		_, err = s.Get(key)
		wantKind(t, "get "+string(key), err, errdefs.NotFound)
	}
	names, err := s.names()
	must(t, err)
	if !cmp.Equal(names, []string{lockFile}) {
		t.Errorf("left: %v", names)
	}
}

func TestLinkedDirectories(t *testing.T) {
	base := t.TempDir()
	home := filepath.Join(base, "up", "home")
	s := openStore(t, filepath.Join(home, "codebases"), nil)
	project := filepath.Join(base, "project")
	must(t, os.MkdirAll(filepath.Join(project, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(project, "f"), []byte("kept"), 0o644))
	must(t, os.MkdirAll(filepath.Join(home, "sandboxes"), 0o755))
	must(t, os.Symlink(project, filepath.Join(base, "link")))
	for _, r := range []struct {
		name, path string
		want       errdefs.Kind
	}{
		{"a relative path", "project", errdefs.Invalid},
		{"the state directory", home, errdefs.Invalid},
		{"the root", "/", errdefs.Invalid},
		{"what lies in it", filepath.Join(home, "sandboxes"), errdefs.Invalid},
		{"the store", s.dir, errdefs.Invalid},
		{"a file", filepath.Join(project, "f"), errdefs.Invalid},
		{"what is absent", filepath.Join(base, "absent"), errdefs.NotFound},
		{"a NUL", project + "\x00", errdefs.Invalid},
		{"nothing", "", errdefs.Invalid},
	} {
		_, err := s.Link(id.NewCodebase(), r.path, false)
		wantKind(t, r.name, err, r.want)
	}
	c, err := s.Link(id.NewCodebase(), filepath.Join(base, "link"), false)
	must(t, err)
	if source, err := c.Source(); err != nil || source != project {
		t.Errorf("its source is %q, %v", source, err)
	}
	_, err = upload(c, path(t, "new"), "", 0)
	wantKind(t, "upload", err, errdefs.Precondition)
	_, err = download(c, path(t, "f"))
	wantKind(t, "download", err, errdefs.Precondition)
	_, err = c.List(t.Context(), "/", true)
	wantKind(t, "list", err, errdefs.Precondition)
	for what, err := range map[string]error{
		"remove": c.Remove(path(t, "f")), "make directory": c.MakeDir(path(t, "d"), 0), "make link": c.MakeLink(path(t, "l"), "f"),
		"sync": c.Change(func() (*SizeDelta, error) { t.Error("called"); return nil, nil }),
	} {
		wantKind(t, what, err, errdefs.Precondition)
	}
	must(t, s.Delete(c.ID()))
	if content, err := os.ReadFile(filepath.Join(project, "f")); err != nil || string(content) != "kept" {
		t.Errorf("the directory was touched: %q, %v", content, err)
	}
}

func TestLinkIsToOneDirectory(t *testing.T) {
	base := t.TempDir()
	s := openStore(t, filepath.Join(base, "home", "codebases"), nil)
	project := filepath.Join(base, "project")
	must(t, os.Mkdir(project, 0o755))
	c, err := s.Link(id.NewCodebase(), project, false)
	must(t, err)
	must(t, os.Rename(project, project+".old"))
	_, err = c.Source()
	wantKind(t, "the directory is gone", err, errdefs.NotFound)
	must(t, os.Symlink(project+".old", project))
	_, err = c.Source()
	wantKind(t, "a link stands there", err, errdefs.Invalid)
	must(t, os.Remove(project))
	must(t, os.Mkdir(project, 0o755))
	_, err = c.Source()
	wantKind(t, "another directory stands there", err, errdefs.Precondition)
}

func TestLinkNeedsToBeReadable(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root reads everything: play an ordinary user on this thread's rights.
		asNobody(t)
	}
	dir, err := os.MkdirTemp("", "codebase")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	closed := filepath.Join(dir, "closed")
	must(t, os.Mkdir(closed, 0o300))
	s := &Store{dir: dir}
	_, err = s.resolve(closed)
	wantKind(t, "a directory that cannot be read", err, errdefs.Denied)
}

func asNobody(t *testing.T) {
	t.Helper()
	const nobody = 65534
	must(t, unix.Setresuid(-1, nobody, -1))
	t.Cleanup(func() { must(t, unix.Setresuid(-1, 0, -1)) })
}

func TestLimitsOfACodebase(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir(), Limits: StorageLimits{FileBytes: 5, Bytes: 12, Files: 3}})
	must(t, err)
	defer s.Close()
	c, err := s.Create(id.NewCodebase())
	must(t, err)
	put(t, c, "a", "12345")
	put(t, c, "b", "12345")
	_, err = c.Upload(path(t, "c"), 6, 0)
	wantKind(t, "a file that says that it is too large", err, errdefs.Exhausted)
	u, err := c.Upload(path(t, "c"), 0, 0)
	must(t, err)
	_, err = u.Write([]byte("123456"))
	wantKind(t, "a file that is too large", err, errdefs.Exhausted)
	u.Abort()
	_, err = upload(c, path(t, "new/c"), "123", 0)
	wantKind(t, "too much in all", err, errdefs.Exhausted)
	put(t, c, "a", "1234")
	put(t, c, "c", "123")
	wantKind(t, "too many files", c.MakeLink(path(t, "d"), "a"), errdefs.Exhausted)
	must(t, c.Change(func() (*SizeDelta, error) { return &SizeDelta{FileCount: 5, SizeBytes: 90}, nil }))
	put(t, c, "a", "1")
	must(t, c.Remove(path(t, "b")))
	if got := listing(t, c, "", true); !cmp.Equal(got, []string{"a 100644 1", "c 100644 3"}) {
		t.Errorf("there is %q", got)
	}
	wantEmptyStaging(t, c)
}

// Files with holes may be of any size, and each counts with it: together they do
// not seem to be few.
func TestSizesBeyondAllNumbersAreBeyondTheLimits(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir(), Limits: StorageLimits{Bytes: 1 << 40}})
	must(t, err)
	defer s.Close()
	c, err := s.Create(id.NewCodebase())
	must(t, err)
	for range 2 {
		must(t, c.Change(func() (*SizeDelta, error) { return &SizeDelta{FileCount: 1, SizeBytes: math.MaxInt64}, nil }))
	}
	if u := c.Usage(); u.SizeBytes != math.MaxInt64 {
		t.Errorf("it holds %d bytes", u.SizeBytes)
	}
	_, err = upload(c, path(t, "f"), "x", 0)
	wantKind(t, "one more file", err, errdefs.Exhausted)
}

// What a sandbox closed even to its owner does not make the codebase unusable.
func TestDirectoriesThatCannotBeListed(t *testing.T) {
	dir, err := os.MkdirTemp("", "codebase")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		must(t, os.Chown(dir, 65534, 65534))
		asNobody(t)
	}
	s := openStore(t, filepath.Join(dir, "codebases"), nil)
	c, err := s.Create(id.NewCodebase())
	must(t, err)
	put(t, c, "closed/f", "12345")
	put(t, c, "g", "123")
	must(t, os.Chmod(filepath.Join(c.path(), filesDir, "closed"), 0))
	must(t, c.Change(func() (*SizeDelta, error) { return nil, nil }))
	if u := c.Usage(); u.FileCount != 1 || u.SizeBytes != 3 {
		t.Errorf("counted %+v", u)
	}
	_, err = c.List(t.Context(), "/", true)
	wantKind(t, "a listing that would leave something out", err, errdefs.Denied)
	must(t, c.Remove(path(t, "closed")))
	if got := listing(t, c, "", true); !cmp.Equal(got, []string{"g 100644 3"}) {
		t.Errorf("there is %q", got)
	}
	wantUsage(t, c, 1, 3)
	must(t, s.Delete(c.ID()))
}

// A sandbox hides the state directory, and nothing else of the server's.
func TestALinkAroundTheServersDirectories(t *testing.T) {
	base := t.TempDir()
	home, outside := filepath.Join(base, "a", "home"), filepath.Join(base, "b")
	must(t, os.MkdirAll(home, 0o755))
	inHome := openStore(t, filepath.Join(home, "codebases"), nil)
	_, err := inHome.Link(id.NewCodebase(), filepath.Dir(home), false)
	must(t, err)
	elsewhere, err := Open(Options{Dir: filepath.Join(outside, "codebases"), Home: home})
	must(t, err)
	t.Cleanup(func() { elsewhere.Close() })
	_, err = elsewhere.Link(id.NewCodebase(), outside, false)
	wantKind(t, "what contains a store outside of the state directory", err, errdefs.Invalid)
	_, err = elsewhere.Link(id.NewCodebase(), filepath.Dir(home), false)
	must(t, err)
}
