package reviewui

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// source asks the backend, for one command at a time.
type source struct {
	ctx   context.Context
	o     Options
	audit uint64 // number of the last record that was read
	temp  tempDir

	mu sync.Mutex // held during each command
}

func newSource(ctx context.Context, o Options) *source {
	return &source{ctx: ctx, o: o}
}

// close waits for the command that runs, and removes what was written for an editor.
func (s *source) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.temp.remove()
}

// listed is what has changed by now.
type listed struct {
	files  []review.FileDiff
	groups []review.Group
	lost   error
	// stamps are those of the paths that were to be stamped again.
	stamps  map[vpath.Path]stamp
	records []audit.Record // new ones of the audit log
	running bool
	asks    bool // it runs and may ask
	took    time.Duration
	err     error
}

// list lists the changes, and stamps some again.
func (s *source) list(again []vpath.Path) tea.Cmd {
	return s.do(func() tea.Msg {
		start := time.Now()
		l := listed{lost: s.o.Changes.Lost()}
		r, err := s.o.Changes.Review(s.ctx, s.o.Paths, backend.Names)
		switch {
		case errdefs.Is(err, errdefs.NotFound) && len(s.o.Paths) > 0: // nothing is left at them
		case err != nil:
			return listed{err: err}
		default:
			l.files, l.groups = slices.Clone(r.Files()), r.Groups()
			if err := r.Close(); err != nil {
				return listed{err: err}
			}
		}
		if l.stamps, err = s.stamps(again); errdefs.Is(err, errdefs.NotFound) { // one is gone since
			err = nil
		}
		if err == nil {
			err = s.readLog(&l)
		}
		l.err, l.took = err, time.Since(start)
		return l
	})
}

// readLog reads what is new in the audit log, and whether the sandbox runs.
func (s *source) readLog(l *listed) error {
	sb, err := s.o.Backend.Inspect(s.ctx, s.o.Name) // Sandbox does not look whether it runs
	if err != nil {
		return err
	}
	l.running = sb.Status == record.Running
	l.asks = l.running && sb.Record.Ask != nil
	return s.o.Backend.Audit(s.ctx, s.o.Name, s.audit, false, func(r audit.Record) error {
		s.audit = max(s.audit, r.Seq)
		switch r.Event.(type) {
		case audit.PermissionDenied, audit.NetworkDenied, audit.NetworkAllowed:
			r.Raw = nil // valid during this call only
			l.records = append(l.records, r)
		}
		return nil
	})
}

// stamps stamps what can be applied at and below the paths.
func (s *source) stamps(paths []vpath.Path) (map[vpath.Path]stamp, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	r, err := s.o.Changes.Review(s.ctx, paths, backend.Counts)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return stampsOf(r.Review)
}

// opened is the content of a change.
type opened struct {
	path  vpath.Path
	doc   *document
	stamp stamp
	err   error
}

// open reads the content of the change at a path.
func (s *source) open(path vpath.Path) tea.Cmd {
	return s.do(func() tea.Msg {
		parts, st, err := s.read(path)
		if err != nil {
			return opened{path: path, err: err}
		}
		return opened{path: path, doc: newDocument(parts), stamp: st}
	})
}

func (s *source) read(path vpath.Path) ([]part, stamp, error) {
	r, err := s.o.Changes.Review(s.ctx, []vpath.Path{path}, backend.Counts)
	if err != nil {
		return nil, stamp{}, err
	}
	defer r.Close()
	files := r.Files()
	i := slices.IndexFunc(files, func(f review.FileDiff) bool { return f.Path == path })
	if i < 0 {
		return nil, stamp{}, errdefs.New(errdefs.NotFound, "%s: nothing changed there", path)
	}
	return compare(r.Review, &files[i])
}

// stamped are changes that are to be staged.
type stamped struct {
	stamps map[vpath.Path]stamp
	err    error
}

func (s *source) stamp(paths []vpath.Path) tea.Cmd {
	return s.do(func() tea.Msg {
		stamps, err := s.stamps(paths)
		return stamped{stamps, err}
	})
}

// applied is how an apply went.
type applied struct {
	result  backend.Applied
	differs []vpath.Path // that are no longer as they were staged; then nothing was applied
	err     error
}

// apply applies exactly what was staged: what has another stamp now stops it, and what changes
// from here on is left out by its digest.
func (s *source) apply(staged map[vpath.Path]stamp, parts map[vpath.Path]chosenHunks) tea.Cmd {
	staged, parts = maps.Clone(staged), maps.Clone(parts)
	return s.do(func() tea.Msg {
		o, differs, err := s.remember(staged, parts)
		if err != nil || len(differs) > 0 {
			return applied{differs: differs, err: err}
		}
		result, err := s.o.Changes.Apply(s.ctx, o)
		return applied{result: result, err: err}
	})
}

// remember stores what was staged as what was shown, unless something differs, and returns how to
// apply it: by path, or if only hunks of a file are staged, by id.
func (s *source) remember(staged map[vpath.Path]stamp, parts map[vpath.Path]chosenHunks) (o backend.ApplyOptions, differs []vpath.Path, err error) {
	paths := slices.Sorted(maps.Keys(staged))
	r, err := s.o.Changes.Review(s.ctx, paths, backend.Contents)
	if err != nil {
		return o, nil, err
	}
	defer r.Close()
	now, err := stampsOf(r.Review)
	if err != nil {
		return o, nil, err
	}
	if differs = differing(now, staged); len(differs) > 0 {
		return o, differs, nil
	}
	if o.Paths = paths; len(parts) > 0 {
		o.Paths = nil
		if o.Hunks, err = idsOf(r.Review, parts); err != nil {
			return o, nil, err
		}
	}
	if o.Reviewed, err = r.Remember(); err == nil {
		err = r.Note(o.Reviewed)
	}
	return o, nil, err
}

// differing returns the paths that are no longer as they were staged, in order.
func differing(now, staged map[vpath.Path]stamp) (differs []vpath.Path) {
	for path, st := range now {
		if st != staged[path] { // also if it is not staged, and below a path that is
			differs = append(differs, path)
		}
	}
	for path := range staged {
		if _, is := now[path]; !is {
			differs = append(differs, path)
		}
	}
	slices.Sort(differs)
	return differs
}

// discarded is how a discard went.
type discarded struct {
	count int
	err   error
}

func (s *source) discard(paths []vpath.Path) tea.Cmd {
	return s.do(func() tea.Msg {
		d, err := s.o.Changes.Discard(s.ctx, paths, false)
		return discarded{len(d.Paths), err}
	})
}

// do makes a command of what asks the backend.
func (s *source) do(ask func() tea.Msg) tea.Cmd {
	return func() tea.Msg {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ctx.Err() != nil {
			return nil
		}
		return ask()
	}
}
