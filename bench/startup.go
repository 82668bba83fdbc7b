package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// A hostMeasure measures a place from outside: nanoseconds or bytes, or
// errNotComparable.
type hostMeasure func(ctx context.Context, p place) (float64, error)

// startPasses is how often a command is started for one sample.
const startPasses = 5

func measureStart(ctx context.Context, p place) (float64, error) {
	s, ok := p.(starter)
	if !ok {
		return 0, errNotComparable
	}
	return medianTime(func() *exec.Cmd { return s.Start(ctx) })
}

func measureVersion(ctx context.Context, p place) (float64, error) {
	a, ok := p.(*agentfense)
	if !ok {
		return 0, errNotComparable
	}
	return medianTime(func() *exec.Cmd { return a.command(ctx, "version") })
}

// measureExec is what a command in a running sandbox takes, less what the
// binary takes to do nothing.
func measureExec(ctx context.Context, p place) (above float64, err error) {
	a, ok := p.(*agentfense)
	if !ok {
		return 0, errNotComparable
	}
	name, end, err := a.detached(ctx, a.disk.Source())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	whole, err := medianTime(func() *exec.Cmd { return a.command(ctx, "exec", name, "--", "true") })
	if err != nil {
		return 0, err
	}
	own, err := measureVersion(ctx, p)
	return whole - own, err
}

// measureInner is what a command takes in an inner sandbox of a running one, less what it takes in
// that one. Of plain bubblewrap it is the start.
func measureInner(ctx context.Context, p place) (above float64, err error) {
	if b, ok := p.(*bwrap); ok {
		return measureStart(ctx, b)
	}
	a, ok := p.(*agentfense)
	if !ok {
		return 0, errNotComparable
	}
	name, end, err := a.detached(ctx, a.disk.Source())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	whole, err := medianTime(func() *exec.Cmd {
		return a.command(ctx, "exec", name, "--", "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "true")
	})
	if err != nil {
		return 0, err
	}
	direct, err := medianTime(func() *exec.Cmd { return a.command(ctx, "exec", name, "--", "true") })
	return whole - direct, err
}

// medianTime is medianOf the time that a command takes.
func medianTime(command func() *exec.Cmd) (float64, error) {
	return medianOf(func() (time.Duration, error) {
		errs := &tail{}
		cmd := command()
		cmd.Stderr = errs
		start := time.Now()
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, errs)
		}
		return time.Since(start), nil
	})
}

// medianOf measures once to warm up, then startPasses times.
func medianOf(measure func() (time.Duration, error)) (float64, error) {
	var took []float64
	for i := range startPasses + 1 {
		t, err := measure()
		if err != nil {
			return 0, err
		}
		if i > 0 {
			took = append(took, float64(t))
		}
	}
	slices.Sort(took)
	return median(took), nil
}
