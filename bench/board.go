package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// boardOthers is how many other sandboxes of the source run while the board is measured.
const boardOthers = 8

// onBoard has measure act with a sandbox that runs beside others of its source.
func onBoard(ctx context.Context, p place, measure func(a *agentfense, name string) (float64, error)) (took float64, err error) {
	a, ok := p.(*agentfense)
	if !ok {
		return 0, errNotComparable
	}
	var name string
	for range boardOthers + 1 {
		started, end, failed := a.detached(ctx, a.disk.Source())
		if failed != nil {
			return 0, failed
		}
		defer func() { err = errors.Join(err, end()) }()
		name = started
	}
	whole, err := measure(a, name)
	if err != nil {
		return 0, err
	}
	own, err := measureVersion(ctx, p)
	return whole - own, err
}

// measureLock is how long a lock takes until it holds in all sandboxes, less what the binary takes
// to do nothing.
func measureLock(ctx context.Context, p place) (float64, error) {
	return onBoard(ctx, p, func(a *agentfense, name string) (float64, error) {
		return medianOf(func() (time.Duration, error) {
			start := time.Now()
			err := a.do(ctx, "lock", name, "bench-lock")
			took := time.Since(start)
			if err == nil { // a path that is locked already would be no change for the others
				err = a.do(ctx, "unlock", name, "bench-lock")
			}
			return took, err
		})
	})
}

// measureMessage is how long a message takes until a reader has it, less what the binary takes to
// do nothing.
func measureMessage(ctx context.Context, p place) (float64, error) {
	return onBoard(ctx, p, func(a *agentfense, name string) (took float64, err error) {
		reading, stop := context.WithCancel(ctx)
		defer stop()
		reader := a.command(reading, "board", "read", name, "--follow", "--json")
		out, err := reader.StdoutPipe()
		if err == nil {
			err = reader.Start()
		}
		if err != nil {
			return 0, err
		}
		defer func() {
			stop()
			_ = reader.Wait() // it was killed
		}()
		lines := bufio.NewReader(out)
		sent := 0
		post := func() (time.Duration, error) {
			sent++
			text := fmt.Sprintf("message %d of the benchmark", sent)
			start := time.Now()
			errs := &tail{}
			cmd := a.command(ctx, "board", "post", name, text)
			cmd.Stderr = errs
			if err := cmd.Start(); err != nil {
				return 0, err
			}
			err := awaitLine(lines, text)
			took := time.Since(start)
			if ended := cmd.Wait(); ended != nil {
				return 0, fmt.Errorf("board post: %w: %s", ended, errs)
			}
			return took, err
		}
		return medianOf(post)
	})
}

// awaitLine reads until a line has the text.
func awaitLine(from *bufio.Reader, text string) error {
	for {
		line, err := from.ReadString('\n')
		if strings.Contains(line, text) {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return errors.New("board read: it ended")
		}
		if err != nil {
			return err
		}
	}
}
