package codebase

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Usage is the size of a codebase; zero for a linked directory.
type Usage struct {
	// FileCount counts all entries except directories.
	FileCount int64 `json:"file_count"`
	// SizeBytes is the length of all regular files.
	SizeBytes int64     `json:"size_bytes"`
	UpdatedAt time.Time `json:"updated_at"`
	// DirCount counts directories, without the root.
	DirCount int64 `json:"dir_count"`
}

// SizeDelta is the growth of a codebase's usage by a change.
type SizeDelta struct{ FileCount, SizeBytes, DirCount int64 }

// add counts one entry, or with the sign -1 subtracts it. Nil counts nothing.
func (g *SizeDelta) add(st *unix.Stat_t, sign int64) {
	switch {
	case st == nil:
		return
	case isDir(st):
		g.DirCount += sign
		return
	}
	g.FileCount += sign
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		g.SizeBytes = safefs.AddSizes(g.SizeBytes, sign*st.Size)
	}
}

// names is the number of additional entries of any kind.
func (g SizeDelta) names() int64 { return g.FileCount + g.DirCount }

// usageFile exists only while it is exact: the first change removes it.
const usageFile = "usage.json"

// Usage returns the size of the codebase.
func (c *Codebase) Usage() Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usage
}

// growLocked records growth, for which h, if not nil, was held.
func (c *Codebase) growLocked(g SizeDelta, h *hold) {
	c.usage.FileCount += g.FileCount
	c.usage.SizeBytes = safefs.AddSizes(c.usage.SizeBytes, g.SizeBytes)
	c.usage.DirCount += g.DirCount
	c.usage.UpdatedAt = time.Now()
	c.settleLocked(h)
}

// tell calls the observer with the current usage.
func (c *Codebase) tell() {
	if c.store.observer == nil {
		return
	}
	c.telling.Lock()
	defer c.telling.Unlock()
	c.store.observer.CodebaseChanged(c.id, c.Usage())
}

// Change calls do while no other call changes the codebase, for a sync or an apply, which replaces
// files below Source. do returns the growth of the usage, also if it fails midway; for nil all
// files are counted again. Errors: those of do; NotFound; Precondition for a linked directory.
func (c *Codebase) Change(do func() (*SizeDelta, error)) error {
	var failure error
	err := c.change(func(d dirs) error {
		var g *SizeDelta
		if g, failure = do(); g == nil {
			return c.recountLocked(d.files)
		}
		c.growLocked(*g, nil)
		return nil
	})
	return errors.Join(failure, err)
}

// soilLocked removes usageFile before the first change.
func (c *Codebase) soilLocked() error {
	if !c.clean {
		return nil
	}
	dir := c.path()
	err := os.Remove(filepath.Join(dir, usageFile))
	if err == nil {
		err = safefs.SyncDir(dir)
	}
	if err != nil {
		return wrapStore("codebase "+string(c.id), err)
	}
	c.clean = false
	return nil
}

// path is the host path of the codebase's directory, which only the server's user can write.
func (c *Codebase) path() string { return filepath.Join(c.store.dir, string(c.id)) }

// close writes usageFile.
func (c *Codebase) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loaded || c.gone || c.clean || c.link != nil {
		return nil
	}
	text, err := json.Marshal(c.usage)
	if err == nil {
		err = safefs.WriteDurably(c.path(), usageFile, text)
	}
	c.clean = err == nil
	return wrapStore("codebase "+string(c.id), err)
}

// loadUsageLocked reads usageFile, or counts the files.
func (c *Codebase) loadUsageLocked(dir int) error {
	text, err := readSmall(dir, usageFile)
	noted := Usage{DirCount: -1} // an older server did not record it
	if err == nil && json.Unmarshal(text, &noted) == nil && noted.DirCount >= 0 {
		c.usage, c.clean = noted, true
		return nil
	}
	if err == nil { // damaged, or of an older server: remove it
		err = unix.Unlinkat(dir, usageFile, 0)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return wrapStore("codebase "+string(c.id), err)
	}
	files, err := safefs.OpenDir(dir, filesDir, unix.O_PATH)
	if err != nil {
		return wrapStore("codebase "+string(c.id), err)
	}
	defer unix.Close(files)
	return c.recountLocked(files)
}

// readSmall reads the file name of dir.
func readSmall(dir int, name string) ([]byte, error) {
	fd, err := safefs.Open(dir, name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	buf := make([]byte, 64<<10)
	n, err := f.Read(buf)
	return buf[:n], err
}

// recountLocked counts all files. It skips directories that a sandbox made unreadable even for
// their owner, because the codebase must stay usable.
func (c *Codebase) recountLocked(files int) error {
	g, err := count(files, vpath.Root, true)
	if err != nil {
		return err
	}
	c.usage = Usage{FileCount: g.FileCount, SizeBytes: g.SizeBytes, DirCount: g.DirCount, UpdatedAt: time.Now()}
	c.settleLocked(nil)
	return nil
}

// count counts all entries below the directory p.
func count(root int, p vpath.Path, skipClosed bool) (g SizeDelta, err error) {
	w := walker{root: root, recursive: true, skipClosed: skipClosed, do: func(e found) error {
		g.add(&e.st, 1)
		return nil
	}}
	err = w.walk(context.Background(), p)
	return g, err
}
