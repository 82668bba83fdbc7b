package main

import (
	"context"
	"errors"
	"time"

	"github.com/agentfense/agentfense/bench/host"
)

// settle is how long a place may calm down before its memory is read.
const settle = time.Second

// sessionMemory is the PSS of what a session's place runs beside this program.
func sessionMemory(ctx context.Context, self string, open func() (*session, error), walked bool) (used int64, err error) {
	s, err := open()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if walked {
		if _, err := s.Do(ctx, request{Work: "walk-all", Cold: true}); err != nil {
			return 0, err
		}
	}
	time.Sleep(settle)
	procs, err := host.ReadProcesses()
	if err != nil {
		return 0, err
	}
	return procs.With([]int{s.cmd.Process.Pid}).Without(self).PSS()
}

func measureIdle(ctx context.Context, p place) (float64, error) { return measureMemory(ctx, p, false) }

func measureWalked(ctx context.Context, p place) (float64, error) { return measureMemory(ctx, p, true) }

func measureMemory(ctx context.Context, p place, walked bool) (float64, error) {
	m, ok := p.(meter)
	if !ok {
		return 0, errNotComparable
	}
	n, err := m.Memory(ctx, walked)
	return float64(n), err
}
