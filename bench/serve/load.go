package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/bench/host"
)

const (
	mostIdle     = 2 << 30 // of all sandboxes, when each does nothing
	startedAt    = 4       // sandboxes that are being started or destroyed at once
	settle       = 3 * time.Second
	loadPeriod   = time.Second // one exec of each sandbox
	reportErrors = 5
)

// measureLoad has many sandboxes alive at once.
func measureLoad(ctx context.Context, b *bench) (figures []figure, err error) {
	codebase, err := b.smallCodebase(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	ids, err := b.many(ctx, codebase)
	defer func() { err = errors.Join(err, b.destroyAll(ctx, ids)) }()
	if err != nil {
		return nil, err
	}
	started := time.Since(begun)
	b.say(fmt.Sprintf("%d sandboxes run", len(ids)))
	time.Sleep(settle)
	idle, server, err := b.memory()
	if err != nil {
		return nil, err
	}
	b.say(fmt.Sprintf("an exec every %v in each, for %v", loadPeriod, b.Load))
	l := &load{server: b.server}
	used, err := b.using(func() error {
		l.run(ctx, ids, b.Load)
		return nil
	})
	if err != nil {
		return nil, err
	}
	after, _, err := b.memory()
	if err != nil {
		return nil, err
	}
	figures = []figure{
		{Name: "sandboxes", Unit: count, Value: float64(len(ids))},
		{Name: "started in all after", Unit: nanoseconds, Value: float64(started)},
		{Name: "memory of all sandboxes, idle (PSS)", Unit: memoryBytes, Value: float64(idle), Most: mostIdle * float64(b.Sandboxes) / defaultSandboxes},
		{Name: "memory of the server, idle (PSS)", Unit: memoryBytes, Value: float64(server)},
		{Name: "memory of all sandboxes right after the load (PSS)", Unit: memoryBytes, Value: float64(after)},
		{Name: "execs", Unit: count, Value: float64(len(l.took))},
		{Name: "errors", Unit: count, Value: float64(l.failed), Exact: true},
		{Name: "execs a second", Unit: perSecond, Value: float64(len(l.took)) / l.lasted.Seconds()},
		{Name: "processor time of an exec, in all processes", Unit: nanoseconds, Value: float64(used) / float64(len(l.took))},
	}
	return append(figures, l.took.figures("Exec, from when it was due", 0)...), l.errors()
}

// many starts the sandboxes. Those it returns were made, also with an error.
func (b *bench) many(ctx context.Context, codebase string) ([]string, error) {
	var mu sync.Mutex
	var ids []string
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(startedAt)
	for range b.Sandboxes {
		g.Go(func() error {
			id, err := b.newSandbox(ctx, &sandboxv1.CreateSandboxRequest{CodebaseId: codebase})
			mu.Lock()
			defer mu.Unlock()
			if id != "" {
				ids = append(ids, id)
			}
			return err
		})
	}
	return ids, g.Wait()
}

func (b *bench) destroyAll(ctx context.Context, ids []string) error {
	var g errgroup.Group
	g.SetLimit(startedAt)
	for _, id := range ids {
		g.Go(func() error { return b.destroy(ctx, id) })
	}
	return g.Wait()
}

// memory is the PSS of all processes of all sandboxes, and of the server.
func (b *bench) memory() (sandboxes, server int64, err error) {
	procs, err := host.ReadProcesses()
	if err != nil {
		return 0, 0, err
	}
	own := b.cmd.Process.Pid
	all := procs.With(procs.ByEnv(b.homeVariable()))
	delete(all, own)
	sandboxes, err = all.PSS()
	if err != nil {
		return 0, 0, err
	}
	server, err = host.PIDs{own: true}.PSS()
	return sandboxes, server, err
}

// using is the processor time that server and sandboxes use while do runs. It
// says more than what calls take where others use the machine too.
func (b *bench) using(do func() error) (time.Duration, error) {
	before, err := b.cpu()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := b.cpu()
	return after - before, err
}

// cpu is the processor time that server and sandboxes have used.
func (b *bench) cpu() (time.Duration, error) {
	procs, err := host.ReadProcesses()
	if err != nil {
		return 0, err
	}
	return procs.CPU(procs.With(procs.ByEnv(b.homeVariable()))), nil
}

// load is what many sandboxes did.
type load struct {
	server *server
	lasted time.Duration

	mu     sync.Mutex
	took   durations
	failed int
	first  []error
}

// run has each sandbox do an exec a period, spread over it. What is late is
// done at once, and its time counts from when it was due: a server that cannot
// keep up shows it.
func (l *load) run(ctx context.Context, ids []string, lasting time.Duration) {
	begun := time.Now()
	var all sync.WaitGroup
	for i, id := range ids {
		due := begun.Add(loadPeriod * time.Duration(i) / time.Duration(len(ids)))
		all.Go(func() {
			for ; due.Before(begun.Add(lasting)); due = due.Add(loadPeriod) {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(due)):
				}
				err := l.server.exec(ctx, id, "true")
				l.note(time.Since(due), err)
			}
		})
	}
	all.Wait()
	l.lasted = time.Since(begun)
}

func (l *load) note(took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.took = append(l.took, took)
		return
	}
	l.failed++
	if len(l.first) < reportErrors {
		l.first = append(l.first, err)
	}
}

// errors are the first ones.
func (l *load) errors() error { return errors.Join(l.first...) }
