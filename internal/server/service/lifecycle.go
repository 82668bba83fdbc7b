package service

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/server/codebase"
	"github.com/agentfense/agentfense/internal/server/store"
)

// Recover continues the work of the last server, however that ended. It builds the index from the
// records, removes what was created in part, and syncs changes that were not synced; running
// sandboxes keep running. From then until Close, sandboxes expire.
//
// A record that cannot be read is logged and does not prevent the start.
func (s *Service) Recover(ctx context.Context) error {
	if err := launch.Sweep(ctx, s.home); err != nil {
		s.log.WarnContext(ctx, "cannot remove all leftovers", "err", err)
	}
	if err := os.RemoveAll(s.exportsDir()); err != nil {
		s.log.WarnContext(ctx, "cannot remove the exports of an earlier server", "err", err)
	}
	all, damaged := s.home.List()
	if damaged != nil {
		s.log.WarnContext(ctx, "cannot read some sandboxes", "err", damaged)
	}
	var index []store.Sandbox
	var served []*record.Sandbox
	for _, sb := range all {
		if sb.Record().Served != nil {
			index = append(index, indexed(sb))
			served = append(served, sb)
		}
	}
	if err := s.store.ReplaceSandboxes(ctx, index); err != nil {
		return err
	}
	if err := s.recoverCodebases(ctx); err != nil {
		return err
	}
	inParallel(served, func(sb *record.Sandbox) { s.recoverSandbox(ctx, sb) })
	s.background.Go(s.cleanUp)
	return nil
}

// recoverAtOnce is the number of sandboxes that recover concurrently: most of the time is spent
// waiting for supervisors and for the disk.
const recoverAtOnce = 16

// inParallel calls do for each of all, recoverAtOnce at a time, and returns when all calls have.
func inParallel[T any](all []T, do func(T)) {
	var workers sync.WaitGroup
	next := make(chan T)
	for range min(len(all), recoverAtOnce) {
		workers.Go(func() {
			for each := range next {
				do(each)
			}
		})
	}
	for _, each := range all {
		next <- each
	}
	close(next)
	workers.Wait()
}

// recoverCodebases removes codebases that were created in part (empty, and not in the database) or
// deleted in part. It logs and keeps any other codebase that is not in the database.
func (s *Service) recoverCodebases(ctx context.Context) error {
	ids, err := s.codebases.IDs()
	if err != nil {
		return err
	}
	for _, id := range ids {
		entry, err := s.store.Codebase(ctx, id)
		doomed := s.codebases.IsDoomed(id)
		switch {
		case err == nil:
			err = s.recoverCodebase(ctx, id, entry)
		case errdefs.Is(err, errdefs.NotFound) && doomed:
			err = s.codebases.Delete(id)
		}
		if !errdefs.Is(err, errdefs.NotFound) {
			if err != nil {
				return err
			}
			continue
		}
		files, err := s.codebases.Get(id)
		if err != nil {
			s.log.WarnContext(ctx, "cannot read codebase", "codebase", id, "err", err)
			continue
		}
		_, linked := files.Linked()
		list, err := []codebase.FileInfo(nil), error(nil)
		if !linked { // removing a linked one removes only the link
			list, err = files.List(ctx, vpath.Root, false)
		}
		if err != nil || len(list) > 0 {
			s.log.WarnContext(ctx, "codebase is not in the database; keeping its files", "codebase", id, "err", err)
			continue
		}
		if err := s.codebases.Delete(id); err != nil {
			return err
		}
	}
	return nil
}

// recoverCodebase recovers a codebase of the database: it cancels a deletion that had only begun,
// and updates the recorded size.
func (s *Service) recoverCodebase(ctx context.Context, id codebase.ID, entry store.Codebase) error {
	s.hidden.add(entry.LinkedPath)
	if err := s.codebases.Spare(id); err != nil {
		return err
	}
	files, err := s.codebases.Get(id)
	if err != nil {
		s.log.WarnContext(ctx, "cannot read codebase", "codebase", id, "err", err)
		return nil
	}
	u := files.Usage()
	if _, linked := files.Linked(); linked || u.SizeBytes == entry.SizeBytes && int(u.FileCount) == entry.FileCount {
		return nil
	}
	return s.store.SetCodebaseContent(ctx, entry.ID, u.SizeBytes, int(u.FileCount), u.UpdatedAt)
}

// recoverSandbox recovers one sandbox.
func (s *Service) recoverSandbox(ctx context.Context, sb *record.Sandbox) {
	if err := apply.RecoverSources(sb, nil); err != nil {
		s.log.WarnContext(ctx, "cannot complete an apply", "sandbox", sb.ID(), "err", err)
	}
	client, err := api.Dial(ctx, sb.Dir())
	switch {
	case err == nil:
		s.log.InfoContext(ctx, "sandbox is running", "sandbox", sb.ID())
		// The last server may have died between changing the codebase and notifying its
		// sandboxes.
		err = s.tellOne(ctx, indexed(sb), []vpath.Path{vpath.Root})
		err = errors.Join(err, s.awaitDetached(ctx, sb, client))
		if err == nil && s.syncOf(sb) == config.SyncOnExec {
			_, err = s.sync(ctx, sb, client)
		}
	case errdefs.Is(err, errdefs.NotFound):
		err = s.syncStopped(ctx, sb)
	}
	if err != nil {
		s.log.WarnContext(ctx, "cannot recover sandbox", "sandbox", sb.ID(), "err", err)
	}
	s.expireAt(sb)
}

// expiries are the timers of sandboxes that expire.
type expiries struct {
	mu     sync.Mutex
	timers map[record.ID]*time.Timer
	closed bool
}

func (e *expiries) set(id record.ID, after time.Duration, do func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if e.timers == nil {
		e.timers = map[record.ID]*time.Timer{}
	}
	e.timers[id] = time.AfterFunc(after, do)
}

func (e *expiries) forget(id record.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.timers[id]; t != nil {
		t.Stop()
		delete(e.timers, id)
	}
}

func (e *expiries) any() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.timers) > 0
}

func (e *expiries) stopAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for _, t := range e.timers {
		t.Stop()
	}
}

// expireAt schedules the end of a sandbox that expires.
func (s *Service) expireAt(sb *record.Sandbox) {
	at := sb.Record().Served.ExpiresAt
	if at.IsZero() {
		return
	}
	s.expiries.set(sb.ID(), max(0, time.Until(at)), func() {
		if s.stopped.Err() == nil {
			s.expire(s.stopped, sb.ID())
		}
	})
}

// expire stops a sandbox, and removes it if it has no changes and no snapshots. cleanUp tries again
// what failed.
func (s *Service) expire(ctx context.Context, id record.ID) {
	defer s.lives.lock(string(id))()
	sb, err := s.home.Open(string(id))
	if errdefs.Is(err, errdefs.NotFound) {
		s.expiries.forget(id)
		return
	}
	if err == nil {
		err = s.end(ctx, sb)
	}
	changed := true
	if err == nil {
		changed, err = review.HasChanges(sb)
	}
	if err == nil && !changed {
		changed, err = hasSnapshots(sb)
	}
	if err == nil && !changed {
		_, err = s.destroy(ctx, sb)
	}
	if err != nil {
		s.log.WarnContext(ctx, "cannot stop or remove expired sandbox", "sandbox", id, "err", err)
		return
	}
	s.log.InfoContext(ctx, "sandbox expired", "sandbox", id, "removed", !changed)
}

// Busy reports whether the server has work without a client: a sandbox that will expire. Detached
// commands need no server.
func (s *Service) Busy() bool { return s.expiries.any() }

// pruneEvery is the minimum time between two deletions of old logs; the first is at the server's
// start.
const pruneEvery = time.Hour

// cleanUp removes, at intervals, sandboxes that expired and still exist, and old logs.
func (s *Service) cleanUp() {
	tick := time.NewTicker(s.config.Sandbox.CleanupInterval)
	defer tick.Stop()
	s.pruneLogs()
	pruned := time.Now()
	for {
		select {
		case <-s.stopped.Done():
			return
		case <-tick.C:
		}
		if time.Since(pruned) >= pruneEvery {
			pruned = time.Now()
			s.pruneLogs()
		}
		all, err := s.home.List()
		if err != nil {
			s.log.Warn("cannot read some sandboxes", "err", err)
		}
		for _, sb := range all {
			if r := sb.Record(); r.IsExpired(time.Now()) {
				s.expire(s.stopped, r.ID)
			}
		}
	}
}

// pruneLogs deletes the logs of sandboxes that were removed longer ago than audit.retention.
func (s *Service) pruneLogs() {
	if age := s.config.Audit.Retention; age > 0 {
		if n, err := s.home.PruneLogs(age); err != nil || n > 0 {
			s.log.Info("deleted audit logs of removed sandboxes", "logs", n, "err", err)
		}
	}
}

var _ codebase.Observer = Observer{}
