package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sizes of the rows of changes. Titles name them, so change both.
const (
	changedFiles  = 100_000
	appliedFiles  = 10_000
	deepLayers    = 10
	forksAtOnce   = 50
	exportedFiles = 16 // of bigBytes each: 1 GiB
	chunkBytes    = 4096
)

// prepared are sandboxes that rows share. They are made when the first row asks.
type prepared struct {
	edited  string // all of the small files are changed
	changed string // runs, with 100,000 new files, see changedFiles
	large   string // 1 GiB of new files
	layered map[int]string
}

// changing runs this program in the sandbox, where it changes files. The sandbox is made first.
func (a *agentfense) changing(ctx context.Context, name, source string, change ...string) error {
	args := append(a.runArgs(name, source), "--", a.disk.Self(), changeVerb)
	return a.do(ctx, append(args, change...)...)
}

// once makes a sandbox in which the source's data is changed, unless *name has one.
func (a *agentfense) once(ctx context.Context, name *string, change ...string) error {
	if *name != "" {
		return nil
	}
	made := a.newName()
	if err := a.changing(ctx, made, a.disk.Source(), change...); err != nil {
		return err
	}
	*name = made
	return nil
}

// measureDiff is how long the summary of 10,000 edited files takes.
func measureDiff(ctx context.Context, p place) (float64, error) {
	a, ok := p.(*agentfense)
	if !ok {
		return 0, errNotComparable
	}
	if err := a.once(ctx, &a.edited, "edit", "0", "1"); err != nil {
		return 0, err
	}
	return medianTime(func() *exec.Cmd { return a.command(ctx, "diff", a.edited, "--stat") })
}

// measureApply is how long it takes to apply 10,000 new files to an empty directory; on native, to
// copy as many with cp -a.
func measureApply(ctx context.Context, p place) (float64, error) {
	switch p := p.(type) {
	case *agentfense:
		source, err := p.disk.Fresh("applied")
		if err != nil {
			return 0, err
		}
		name := p.newName()
		if err := p.changing(ctx, name, source, "make", fmt.Sprint(appliedFiles)); err != nil {
			return 0, err
		}
		return p.disk.timeClean(func() error { return p.do(ctx, "apply", name, "--latest") })
	case *plain:
		if p.wrap != nil {
			return 0, errNotComparable
		}
		to, err := p.disk.Fresh("copied")
		if err != nil {
			return 0, err
		}
		return p.disk.timeClean(func() error { return copyTree(filepath.Join(p.disk.Source(), treeMany), to) })
	}
	return 0, errNotComparable
}

// measureMoved is the least that an apply must do, on native: copy, make durable, and remove the
// originals.
func measureMoved(_ context.Context, p place) (float64, error) {
	native, ok := p.(*plain)
	if !ok || native.wrap != nil {
		return 0, errNotComparable
	}
	d := native.disk
	from, err := d.Fresh("moved")
	if err != nil {
		return 0, err
	}
	if err := copyTree(filepath.Join(d.Source(), treeMany), from); err != nil {
		return 0, err
	}
	to, err := d.Fresh("copied")
	if err != nil {
		return 0, err
	}
	return d.timeClean(func() error {
		return errors.Join(copyTree(from, to), d.sync(), os.RemoveAll(from))
	})
}

// sync makes all that was written durable.
func (d *disk) sync() error {
	root, err := os.Open(d.Root)
	if err != nil {
		return err
	}
	defer root.Close()
	return unix.Syncfs(int(root.Fd()))
}

// timeClean is the time that do takes when the disk has nothing to write at its beginning.
func (d *disk) timeClean(do func() error) (float64, error) {
	if err := d.sync(); err != nil {
		return 0, err
	}
	start := time.Now()
	err := do()
	return float64(time.Since(start)), err
}

// measureSnapshot is what a snapshot of a running sandbox with 100,000 new files takes, less what
// the binary takes to do nothing. The first freezes all of them.
func measureSnapshot(ctx context.Context, p place) (float64, error) {
	return measureFreeze(ctx, p, func(a *agentfense) (freeze, plain []string) {
		return []string{"snapshot", a.changed}, []string{"version"}
	})
}

// measureFork is what a fork of it takes, less what an empty sandbox takes to be made.
func measureFork(ctx context.Context, p place) (float64, error) {
	return measureFreeze(ctx, p, func(a *agentfense) (freeze, plain []string) {
		return []string{"fork", a.changed, a.newName()}, []string{"create", "--name", a.newName(), "--dir", a.disk.Source(), "--preset", "full-access"}
	})
}

// measureFreeze is the median of how much longer the first of two commands takes than the second.
func measureFreeze(ctx context.Context, p place, commands func(*agentfense) (freeze, plain []string)) (float64, error) {
	a, ok := p.(*agentfense)
	if !ok {
		return 0, errNotComparable
	}
	if err := a.startChanged(ctx); err != nil {
		return 0, err
	}
	var above []float64
	for range startPasses {
		freeze, plain := commands(a)
		took, err := a.timeOf(ctx, freeze)
		if err != nil {
			return 0, err
		}
		own, err := a.timeOf(ctx, plain)
		if err != nil {
			return 0, err
		}
		above = append(above, float64(took-own))
		if err := a.do(ctx, "exec", a.changed, "--", a.disk.Self(), changeVerb, "one", fmt.Sprint(a.serie.Add(1))); err != nil {
			return 0, err
		}
	}
	slices.Sort(above)
	return median(above), nil
}

func (a *agentfense) timeOf(ctx context.Context, args []string) (time.Duration, error) {
	start := time.Now()
	err := a.do(ctx, args...)
	return time.Since(start), err
}

// startChanged starts the sandbox with 100,000 new files.
func (a *agentfense) startChanged(ctx context.Context) error {
	if a.changed != "" {
		return nil
	}
	name := a.newName()
	args := append(a.runArgs(name, a.disk.Source()), "--detach", "--", "sleep", "3600")
	if err := a.do(ctx, args...); err != nil {
		return err
	}
	if err := a.do(ctx, "exec", name, "--", a.disk.Self(), changeVerb, "empty", fmt.Sprint(changedFiles)); err != nil {
		return err
	}
	a.changed = name
	return nil
}

// inLayers returns a sandbox in which the small files are changed, spread over n layers.
func (a *agentfense) inLayers(ctx context.Context, n int) (string, error) {
	if name := a.layered[n]; name != "" {
		return name, nil
	}
	name := a.newName()
	for i := range n {
		if err := a.changing(ctx, name, a.disk.Source(), "edit", fmt.Sprint(i), fmt.Sprint(n)); err != nil {
			return "", err
		}
		if i == n-1 {
			break // the delta is the last layer
		}
		if err := a.do(ctx, "snapshot", name); err != nil {
			return "", err
		}
	}
	if a.layered == nil {
		a.layered = map[int]string{}
	}
	a.layered[n] = name
	return name, nil
}

// exported returns the arguments that export 1 GiB of new files to a new database.
func (a *agentfense) exported(ctx context.Context) ([]string, error) {
	if err := a.once(ctx, &a.large, "big", fmt.Sprint(exportedFiles)); err != nil {
		return nil, err
	}
	dir, err := a.disk.Fresh("exported")
	return []string{"export", a.large, filepath.Join(dir, "changes.db")}, err
}

// measureExport is how long an export of 1 GiB takes; on native, how long sqlite3 takes to write
// as much in chunks of the same size.
func measureExport(ctx context.Context, p place) (float64, error) {
	switch p := p.(type) {
	case *agentfense:
		args, err := p.exported(ctx)
		if err != nil {
			return 0, err
		}
		return p.disk.timeClean(func() error { return p.do(ctx, args...) })
	case *plain:
		if p.wrap != nil {
			return 0, errNotComparable
		}
		dir, err := p.disk.Fresh("exported")
		if err != nil {
			return 0, err
		}
		sql := fmt.Sprintf(`create table fs_data (ino integer, chunk_index integer, data blob, primary key (ino, chunk_index));
			insert into fs_data with recursive
				one(data) as materialized (select randomblob(%d)),
				n(i) as (select 0 union all select i + 1 from n where i < %d)
			select 1, i, data from n, one;`, chunkBytes, exportedFiles*bigBytes/chunkBytes-1)
		return p.disk.timeClean(func() error {
			out, err := exec.CommandContext(ctx, "sqlite3", filepath.Join(dir, "written.db"), sql).CombinedOutput()
			if err != nil {
				return fmt.Errorf("sqlite3: %w: %s", err, out)
			}
			return nil
		})
	}
	return 0, errNotComparable
}

// measureExportMemory is the most memory that the export has resident.
func measureExportMemory(ctx context.Context, p place) (float64, error) {
	a, ok := p.(*agentfense)
	if !ok {
		return 0, errNotComparable
	}
	args, err := a.exported(ctx)
	if err != nil {
		return 0, err
	}
	cmd := a.command(ctx, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("agentfense export: %w: %s", err, out)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, errNotComparable
	}
	return float64(usage.Maxrss << 10), nil
}

// measureForks is the memory of each of 50 forks of one sandbox that run at once.
func measureForks(ctx context.Context, p place) (used float64, err error) {
	a, ok := p.(*agentfense)
	if !ok {
		return 0, errNotComparable
	}
	if err := a.once(ctx, &a.edited, "edit", "0", "1"); err != nil {
		return 0, err
	}
	names := make([]string, forksAtOnce)
	for i := range names {
		names[i] = a.newName()
	}
	if err := a.do(ctx, append([]string{"fork", a.edited}, names...)...); err != nil {
		return 0, err
	}
	if err := a.stopChanged(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, each(names, a.stop)) }()
	err = each(names, func(name string) error {
		return a.do(ctx, append(a.runArgs(name, a.disk.Source()), "--detach", "--", "sleep", "3600")...)
	})
	if err != nil {
		return 0, err
	}
	time.Sleep(settle)
	n, err := a.memory()
	return float64(n) / forksAtOnce, err
}

// stopChanged stops the sandbox with 100,000 new files: its memory would be measured, too.
func (a *agentfense) stopChanged() error {
	name := a.changed
	a.changed = ""
	if name == "" {
		return nil
	}
	return a.stop(name)
}

// each calls do with all names at once.
func each(names []string, do func(string) error) error {
	failed := make([]error, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() { failed[i] = do(name) })
	}
	group.Wait()
	return errors.Join(failed...)
}
