package codebase

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
)

// owned is a store with limits for owners, and who owns what.
type owned struct {
	*Store
	t      *testing.T
	owners map[ID]string
}

func openOwned(t *testing.T, dir string, l StorageLimits, owners map[ID]string) *owned {
	t.Helper()
	s, err := Open(Options{Dir: dir, Home: filepath.Dir(dir), Limits: l, OwnerOf: func(key ID) (string, error) {
		if owner, known := owners[key]; known {
			return owner, nil
		}
		return "", id.NoSuch("codebase", string(key))
	}})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return &owned{s, t, owners}
}

func (o *owned) create(owner string) *Codebase {
	o.t.Helper()
	key := id.NewCodebase()
	c, err := o.Create(key)
	must(o.t, err)
	o.owners[key] = owner
	return c
}

// wantUsed checks what an owner's account holds.
func (o *owned) wantUsed(owner string, files, size int64) {
	o.t.Helper()
	if got := o.accountOf(owner).used; got != (SizeDelta{FileCount: files, SizeBytes: size}) {
		o.t.Errorf("%s uses %+v, want %d files and %d bytes", owner, got, files, size)
	}
}

func TestAnOwnerHasBounds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codebases")
	o := openOwned(t, dir, StorageLimits{OwnerBytes: 100, OwnerFiles: 4}, map[ID]string{})
	one, two, others := o.create("me"), o.create("me"), o.create("other")
	put(t, one, "a", strings.Repeat("x", 60))
	put(t, two, "b", strings.Repeat("x", 30))
	put(t, others, "c", strings.Repeat("x", 100))
	o.wantUsed("me", 2, 90)

	_, err := upload(two, path(t, "d"), strings.Repeat("x", 20), 0)
	wantKind(t, "beyond the bytes", err, errdefs.Exhausted)
	if want := "hold 90 bytes, and 100 bytes are allowed"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	begun, err := two.Upload(path(t, "d"), 0, 0)
	must(t, err)
	_, err = io.WriteString(begun, strings.Repeat("x", 10))
	must(t, err)
	_, err = upload(one, path(t, "e"), "x", 0)
	wantKind(t, "beside what is on its way", err, errdefs.Exhausted)
	_, err = io.WriteString(begun, "x")
	wantKind(t, "more than fits", err, errdefs.Exhausted)
	begun.Abort()
	o.wantUsed("me", 2, 90)

	must(t, one.MakeLink(path(t, "l"), "a"))
	put(t, one, "empty", "")
	wantKind(t, "one link more", one.MakeLink(path(t, "m"), "a"), errdefs.Exhausted)
	_, err = upload(one, path(t, "n"), "", 0)
	wantKind(t, "one file more", err, errdefs.Exhausted)
	must(t, one.Remove(path(t, "empty")))
	must(t, one.MakeLink(path(t, "l"), "b"))
	o.wantUsed("me", 3, 90)

	must(t, one.Remove(path(t, "a")))
	o.wantUsed("me", 2, 30)
	must(t, o.Delete(two.ID()))
	o.wantUsed("me", 1, 0)
	put(t, one, "a", strings.Repeat("x", 100))
	o.wantUsed("me", 2, 100)
	o.wantUsed("other", 1, 100)
}

func TestUploadsAtOnceAreBounded(t *testing.T) {
	o := openOwned(t, filepath.Join(t.TempDir(), "codebases"), StorageLimits{}, map[ID]string{})
	c := o.create("me")
	var begun []*Upload
	for range mostUploads {
		u, err := c.Upload(path(t, "f"), 0, 0)
		must(t, err)
		begun = append(begun, u)
	}
	_, err := c.Upload(path(t, "f"), 0, 0)
	wantKind(t, "one more", err, errdefs.Exhausted)
	put(t, o.create("other"), "f", "x")
	_, err = begun[0].Commit()
	must(t, err)
	begun[1].Abort()
	begun[1].Abort()
	for range 2 {
		u, err := c.Upload(path(t, "f"), 0, 0)
		must(t, err)
		begun = append(begun, u)
	}
	_, err = c.Upload(path(t, "f"), 0, 0)
	wantKind(t, "one more again", err, errdefs.Exhausted)
	for _, u := range begun {
		u.Abort()
	}
	wantEmptyStaging(t, c)
	o.wantUsed("me", 1, 0)
}

// A directory takes an inode: those on the way to a file, and empty ones, count
// like files.
func TestDirectoriesCountForTheirOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codebases")
	owners := map[ID]string{}
	o := openOwned(t, dir, StorageLimits{OwnerFiles: 6}, owners)
	one, two := o.create("me"), o.create("me")
	must(t, one.MakeDir(path(t, "a/b"), 0))
	put(t, two, "d/e/f", "x")
	wantKind(t, "two more", two.MakeDir(path(t, "x/y"), 0), errdefs.Exhausted)
	_, err := upload(one, path(t, "x/f"), "", 0)
	wantKind(t, "a file in a directory more", err, errdefs.Exhausted)
	wantKind(t, "a link in a directory more", one.MakeLink(path(t, "x/l"), "f"), errdefs.Exhausted)
	wantEmptyStaging(t, one)
	wantEmptyStaging(t, two)
	must(t, one.MakeDir(path(t, "a/b"), 0o700))
	must(t, one.MakeDir(path(t, "a/c"), 0))
	wantKind(t, "one more", two.MakeDir(path(t, "z"), 0), errdefs.Exhausted)
	must(t, one.Remove(path(t, "a/b")))
	must(t, two.MakeDir(path(t, "z"), 0))
	must(t, one.Remove(path(t, "a")))
	must(t, one.Change(func() (*SizeDelta, error) {
		return &SizeDelta{DirCount: 2}, os.MkdirAll(filepath.Join(one.path(), filesDir, "s/t"), 0o755)
	}))
	wantKind(t, "beside what a sandbox brings", two.MakeDir(path(t, "y"), 0), errdefs.Exhausted)

	must(t, o.Close())
	for _, note := range []string{"", `{"file_count": 1, "size_bytes": 1, "updated_at": "2026-01-02T03:04:05Z"}`} {
		if note != "" { // as an older server wrote it
			must(t, os.WriteFile(filepath.Join(dir, string(two.ID()), usageFile), []byte(note), 0o600))
		}
		o = openOwned(t, dir, StorageLimits{OwnerFiles: 6}, owners)
		for _, id := range []ID{one.ID(), two.ID()} {
			_, err := o.Get(id)
			must(t, err)
		}
		if got := o.accountOf("me").used; got != (SizeDelta{FileCount: 1, SizeBytes: 1, DirCount: 5}) {
			t.Errorf("after a restart it uses %+v", got)
		}
		must(t, o.Close())
	}
}

// What is on its way counts until it ends, however that is.
func TestUploadsAtOnceCannotPassTheBoundTogether(t *testing.T) {
	o := openOwned(t, filepath.Join(t.TempDir(), "codebases"), StorageLimits{OwnerBytes: 1000, OwnerFiles: 50}, map[ID]string{})
	var all sync.WaitGroup
	var mu sync.Mutex
	stored := int64(0)
	// All are there before the first upload: the test's map of owners has no lock.
	for _, c := range []*Codebase{o.create("me"), o.create("me"), o.create("me"), o.create("me")} {
		for g := range 4 {
			all.Go(func() {
				for i := range 20 {
					p := path(t, "f"+string(rune('a'+g))+string(rune('a'+i)))
					total := int64(50 * (i % 2)) // told before, or not
					u, err := c.Upload(p, total, 0)
					if err != nil {
						continue
					}
					_, err = io.WriteString(u, strings.Repeat("x", 50))
					if err == nil && i%5 != 0 {
						_, err = u.Commit()
						if err == nil {
							mu.Lock()
							stored += 50
							mu.Unlock()
						}
					}
					u.Abort()
				}
			})
		}
	}
	all.Wait()
	if stored > 1000 || stored == 0 {
		t.Errorf("%d bytes are stored, 1000 are allowed", stored)
	}
	o.wantUsed("me", stored/50, stored)
}

// After a crash what is there is counted anew, and what was on its way is gone.
// More than the bound stays, and only shrinks.
func TestTheBoundAfterARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "codebases")
	owners := map[ID]string{}
	o := openOwned(t, dir, StorageLimits{}, owners)
	one, two := o.create("me"), o.create("me")
	put(t, one, "a", strings.Repeat("x", 60))
	put(t, two, "b", strings.Repeat("x", 60))
	must(t, o.Close())
	o = openOwned(t, dir, StorageLimits{OwnerBytes: 100}, owners)
	must(t, os.Remove(filepath.Join(dir, string(one.ID()), usageFile))) // as after a kill
	must(t, os.WriteFile(filepath.Join(dir, string(two.ID()), stagingDir, "1"), []byte("left"), 0o600))
	one, err := o.Get(one.ID())
	must(t, err)
	two, err = o.Get(two.ID())
	must(t, err)
	o.wantUsed("me", 2, 120)
	_, err = upload(one, path(t, "c"), "x", 0)
	wantKind(t, "above the bound", err, errdefs.Exhausted)
	if got, err := download(two, path(t, "b")); err != nil || len(got) != 60 {
		t.Errorf("what is there: %d bytes, %v", len(got), err)
	}
	put(t, one, "empty", "")
	must(t, two.Remove(path(t, "b")))
	put(t, one, "c", "x")
	o.wantUsed("me", 3, 61)
}

// What a sandbox brings counts, and is not refused; a size that fits nowhere does
// not disturb the sum.
func TestWhatSandboxesBringCounts(t *testing.T) {
	o := openOwned(t, filepath.Join(t.TempDir(), "codebases"), StorageLimits{OwnerBytes: 100}, map[ID]string{})
	c, sparse := o.create("me"), o.create("me")
	put(t, c, "a", strings.Repeat("x", 60))
	for _, g := range []SizeDelta{{1, math.MaxInt64, 0}, {1, math.MaxInt64, 0}, {-2, -math.MaxInt64, 0}} {
		must(t, sparse.Change(func() (*SizeDelta, error) { return &g, nil }))
		if g.FileCount > 0 {
			_, err := upload(c, path(t, "b"), "x", 0)
			wantKind(t, "beside it", err, errdefs.Exhausted)
		}
	}
	o.wantUsed("me", 1, 60)
	_, err := c.Upload(path(t, "b"), math.MaxInt64, 0)
	wantKind(t, "a size that is a lie", err, errdefs.Exhausted)
	o.wantUsed("me", 1, 60)
}
