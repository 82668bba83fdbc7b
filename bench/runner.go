package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// runner takes the samples: round by round, row by row, the places in turn.
type runner struct {
	disk   *disk
	places []place
	rows   []row
	rounds int
	say    func(string)

	tools   map[string]string
	results []measured
	broken  map[string]bool // row and place that failed: not tried again
	notes   []string
	nonce   int
}

// measured is a row with its samples by place.
type measured struct {
	row
	Samples   map[string]samples
	reference samples // agentfense's in the row Bound.Of
}

func (r *runner) Run(ctx context.Context) (result, error) {
	machine, start := newMachine(r.disk), time.Now()
	r.tools = findTools()
	r.broken = map[string]bool{}
	for _, row := range r.rows {
		m := measured{row: row, Samples: map[string]samples{}}
		for _, p := range r.places {
			m.Samples[p.Name()] = newSamples(r.rounds)
		}
		r.results = append(r.results, m)
	}
	for round := range r.rounds {
		if err := r.round(ctx, round); err != nil {
			return result{}, err
		}
	}
	return newResult(r, machine, time.Since(start)), nil
}

func (r *runner) round(ctx context.Context, round int) error {
	if err := r.liveRows(ctx, round); err != nil {
		return err
	}
	for i := range r.results {
		m := &r.results[i]
		if m.Host == nil && m.Mode == live || m.MaxRounds > 0 && round >= m.MaxRounds {
			continue
		}
		r.sayRow(round, m)
		for _, p := range r.turn(round + i) {
			if err := r.sample(ctx, round, m, p, r.alone); err != nil {
				return err
			}
		}
	}
	return nil
}

// liveRows measures what needs warm caches in one session of each place. They
// are closed before anything is written: a sandbox that watches the file system
// for changes would slow down the others' writes.
func (r *runner) liveRows(ctx context.Context, round int) (err error) {
	open := map[string]*session{}
	defer func() {
		for _, s := range open {
			err = errors.Join(err, s.Close())
		}
	}()
	for i := range r.results {
		m := &r.results[i]
		if m.Host != nil || m.Mode != live {
			continue
		}
		r.sayRow(round, m)
		for _, p := range r.turn(round + i) {
			measure := func(ctx context.Context, m *measured, p place) (float64, error) { return r.inSession(ctx, open, m, p) }
			if err := r.sample(ctx, round, m, p, measure); err != nil {
				return err
			}
		}
	}
	return nil
}

// inSession opens the place's live session when there is none. A session in
// which something failed is not used again.
func (r *runner) inSession(ctx context.Context, open map[string]*session, m *measured, p place) (float64, error) {
	if m.Cold {
		if err := r.warmNative(ctx, p); err != nil {
			return 0, err
		}
	}
	s := open[p.Name()]
	if s == nil {
		var err error
		if s, err = p.Open(ctx, nil); err != nil {
			return 0, err
		}
		open[p.Name()] = s
	}
	took, err := s.Do(ctx, r.request(m))
	if err != nil {
		delete(open, p.Name())
		err = errors.Join(err, s.Close())
	}
	return float64(took), err
}

// warmNative reads the place's data where it lies, so that a first touch
// measures the place and not the disk.
func (r *runner) warmNative(ctx context.Context, p place) error {
	root := r.disk.Source()
	if c, ok := p.(copier); ok {
		root = c.Root()
	}
	out, err := exec.CommandContext(ctx, "grep", "-rc", needle, filepath.Join(root, treeMany)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("read %s: %w: %.200s", root, err, out)
	}
	return nil
}

// alone measures in a session of its own, or from outside.
func (r *runner) alone(ctx context.Context, m *measured, p place) (took float64, err error) {
	if m.Host != nil {
		return m.Host(ctx, p)
	}
	s, err := openFor(ctx, p, &m.row)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	d, err := s.Do(ctx, r.request(m))
	return float64(d), err
}

type measure func(context.Context, *measured, place) (float64, error)

// sample keeps one value. What fails in one place is noted, once, and does not
// end the run; only its interruption does.
func (r *runner) sample(ctx context.Context, round int, m *measured, p place, do measure) error {
	key := m.ID + " in " + p.Name()
	if r.broken[key] {
		return nil
	}
	v, err := do(ctx, m, p)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		m.Samples[p.Name()][round] = v
		return nil
	}
	r.broken[key] = true
	if !errors.Is(err, errNotComparable) {
		r.notes = append(r.notes, fmt.Sprintf("%s: %v", key, err))
	}
	return nil
}

func (r *runner) request(m *measured) request {
	r.nonce++
	return request{Work: m.Work, Cold: m.Cold, Passes: m.Passes, Nonce: fmt.Sprint(r.nonce), Tools: r.tools}
}

// turn is the order of the places for the i-th row: each begins equally often.
func (r *runner) turn(i int) []place {
	n := i % len(r.places)
	return append(append([]place{}, r.places[n:]...), r.places[:n]...)
}

func (r *runner) sayRow(round int, m *measured) {
	r.say(fmt.Sprintf("round %d of %d: %s", round+1, r.rounds, m.Title))
}
