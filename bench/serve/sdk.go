package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/agentfense/agentfense/client"
)

// sdkRows measure what the packages for Python and Go add to the server's calls.
var sdkRows = []row{
	{"import", "the interpreter alone, and with import agentfense", measureImport},
	{"run", `sb.run("true") in a running sandbox, from Python and Go in turn`, measureRun},
	{"session", `session.exec("true"), from Python and Go in turn`, measureSession},
	{"many", "50 sandboxes driven at once by one event loop", measureMany},
	{"stream", "1 GB of output", measurePythonStream},
	{"stream-async", "1 GB of output in an event loop", measurePythonStreamAsync},
	{"from-local", "from_local on a repository of 100,000 files", measureFromLocal},
	{"wheel", "the wheels in dist", measureWheel},
}

// What is asked of the packages, by the medians of what is measured often.
const (
	mostImport     = 150 * time.Millisecond
	mostRun        = 15 * time.Millisecond
	mostSession    = 10 * time.Millisecond
	mostFromLocal  = time.Second
	mostWheelBytes = 25_000_000
)

func measureImport(ctx context.Context, b *bench) ([]figure, error) {
	codes := []string{"pass", "import agentfense", "from agentfense import Sandbox"}
	took, used := make([]durations, len(codes)), make([]durations, len(codes))
	for i := range untimed + b.Rounds {
		for k, code := range codes {
			cmd, err := b.python(ctx, "-c", code)
			if err != nil {
				return nil, err
			}
			begun := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("python: %s: %w: %s", code, err, out)
			}
			if i >= untimed {
				took[k] = append(took[k], time.Since(begun))
				used[k] = append(used[k], cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			}
		}
	}
	return []figure{
		{Name: "python -c pass, median", Unit: nanoseconds, Value: took[0].at(.5)},
		{Name: codes[1] + ": so much more, median", Unit: nanoseconds, Value: took[1].less(took[0]).at(.5), Most: float64(mostImport)},
		{Name: "processor time of that, median", Unit: nanoseconds, Value: used[1].less(used[0]).at(.5)},
		{Name: codes[2] + ": so much more, median", Unit: nanoseconds, Value: took[2].less(took[0]).at(.5)},
		{Name: "processor time of that, median", Unit: nanoseconds, Value: used[2].less(used[0]).at(.5)},
	}, nil
}

// inTurn measures a work of Python's and the same by the Go client, each in a
// sandbox of its own, in turn.
func (b *bench) inTurn(ctx context.Context, work string, most time.Duration, call func(*client.Sandbox) func() error) (figures []figure, err error) {
	dir, remove, err := b.newSource(1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	box, end, err := b.goSandbox(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	var python, program durations
	inGo := call(box)
	err = b.working(ctx, work, []string{dir}, func(w *worker) error {
		_, err := repeat(ctx, often*b.Rounds, func() error {
			s, err := w.do()
			if err != nil {
				return err
			}
			begun := time.Now()
			err = inGo()
			python, program = append(python, s.NS), append(program, time.Since(begun))
			return err
		})
		return err
	})
	n := min(untimed, len(python))
	figures = append(python[n:].figures("from Python", most), program[n:].figures("from Go", 0)...)
	return figures, err
}

// goSandbox makes a sandbox of a directory by the Go client; end ends both.
func (b *bench) goSandbox(ctx context.Context, dir string) (box *client.Sandbox, end func() error, err error) {
	c, err := client.New(ctx, client.WithEndpoint(b.conn.Target()), client.WithToken(b.token))
	if err != nil {
		return nil, nil, err
	}
	codebase, err := c.LinkCodebase(ctx, dir)
	if err == nil {
		box, err = c.CreateSandbox(ctx, codebase.ID, client.WithPreset("full-access"))
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return box, func() error { return errors.Join(box.Destroy(ctx), c.Close()) }, nil
}

func measureRun(ctx context.Context, b *bench) ([]figure, error) {
	return b.inTurn(ctx, "run", mostRun, func(box *client.Sandbox) func() error {
		return func() error { return ran(box.Run(ctx, "true")) }
	})
}

func ran(r *client.ExecResult, err error) error {
	if err == nil && !r.Success() {
		err = fmt.Errorf("exit code %d", r.ExitCode)
	}
	return err
}

func measureSession(ctx context.Context, b *bench) ([]figure, error) {
	return b.inTurn(ctx, "session", mostSession, func(box *client.Sandbox) func() error {
		var session *client.Session
		return func() (err error) {
			if session == nil {
				if session, err = box.Session(ctx); err != nil {
					return err
				}
			}
			return ran(session.Exec(ctx, "true"))
		}
	})
}

// manySandboxes are driven at once, and each runs manyRuns commands.
const (
	manySandboxes = 50
	manyRuns      = 20
)

func measureMany(ctx context.Context, b *bench) (figures []figure, err error) {
	dir, remove, err := b.newSource(1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	err = b.working(ctx, "many", []string{dir, strconv.Itoa(manySandboxes)}, func(w *worker) error {
		s, err := w.do()
		if err != nil {
			return err
		}
		const commands = manySandboxes * manyRuns
		figures = []figure{
			{Name: "errors", Unit: count, Value: float64(s.Errors), Exact: true},
			{Name: "commands", Unit: count, Value: float64(s.Commands), Most: commands, Exact: true},
			{Name: "commands a second", Unit: perSecond, Value: float64(s.Commands) / s.Driven.Seconds()},
			{Name: "until all are made and run", Unit: nanoseconds, Value: float64(s.Made)},
			{Name: "in all, until all are gone", Unit: nanoseconds, Value: float64(s.NS)},
		}
		if s.Errors > 0 {
			return errors.New(strings.Join(s.Said, "; "))
		}
		return nil
	})
	return figures, err
}

func measurePythonStream(ctx context.Context, b *bench) ([]figure, error) {
	return b.streamedTo(ctx, "stream")
}

func measurePythonStreamAsync(ctx context.Context, b *bench) ([]figure, error) {
	return b.streamedTo(ctx, "stream-async")
}

// streamedTo measures a work that reads output, and the memory of its process,
// of the server and of the supervisor meanwhile.
func (b *bench) streamedTo(ctx context.Context, work string) (figures []figure, err error) {
	dir, remove, err := b.newSource(1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	err = b.working(ctx, work, []string{dir, strconv.Itoa(streamedBytes)}, func(w *worker) error {
		memory, err := b.newSampled(&watched{name: "Python program", pid: w.cmd.Process.Pid})
		if err != nil {
			return err
		}
		stop := memory.watch()
		s, err := w.do()
		stop()
		figures = append([]figure{
			{Name: "bytes that arrived", Unit: count, Value: float64(s.Bytes), Most: streamedBytes, Exact: true},
			{Name: "throughput", Unit: bytesPerS, Value: float64(s.Bytes) / s.NS.Seconds()},
		}, memory.figures()...)
		return err
	})
	return figures, err
}

// repositoryFiles are in the repository of the row from-local.
const repositoryFiles = 100_000

func measureFromLocal(ctx context.Context, b *bench) (figures []figure, err error) {
	dir, remove, err := b.newSource(repositoryFiles)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	for _, of := range []struct{ work, name string }{{"from-local", "ready"}, {"first-from-local", "ready, a server being started"}} {
		var ready, run durations
		err := b.working(ctx, of.work, []string{dir}, func(w *worker) error {
			_, err := repeat(ctx, max(3, b.Rounds/8), func() error {
				s, err := w.do()
				ready, run = append(ready, s.NS), append(run, s.FirstRun)
				return err
			})
			return err
		})
		if err != nil {
			return figures, err
		}
		ready, run = ready[untimed:], run[untimed:]
		figures = append(figures,
			figure{Name: of.name + ", median", Unit: nanoseconds, Value: ready.at(.5), Most: float64(mostFromLocal)},
			figure{Name: of.name + ", most", Unit: nanoseconds, Value: ready.at(1)},
			figure{Name: "its first command, median", Unit: nanoseconds, Value: run.at(.5)})
	}
	return figures, nil
}

func measureWheel(context.Context, *bench) ([]figure, error) {
	wheels, err := filepath.Glob("dist/agentfense-*.whl")
	if err != nil {
		return nil, err
	}
	if len(wheels) == 0 {
		return nil, errNotHere("there is none in dist: make wheel")
	}
	var figures []figure
	for _, wheel := range wheels {
		info, err := os.Stat(wheel)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(wheel), ".whl")
		_, machine, _ := strings.Cut(name[strings.LastIndexByte(name, '.')+1:], "_1_1_")
		figures = append(figures, figure{Name: "for " + machine, Unit: memoryBytes, Value: float64(info.Size()), Most: mostWheelBytes})
	}
	return figures, nil
}

// filesEach are in each directory of a source.
const filesEach = 100

// newSource makes a directory of n small files.
func (b *bench) newSource(n int) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp(b.Dir, "agentfense-bench-source-"); err != nil {
		return "", nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	content := []byte(strings.Repeat("x", filesEach))
	for i := range n {
		in := filepath.Join(dir, "d"+strconv.Itoa(i/filesEach))
		if i%filesEach == 0 {
			err = os.Mkdir(in, 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(in, strconv.Itoa(i)+".txt"), content, 0o644)
		}
		if err != nil {
			return "", nil, errors.Join(err, remove())
		}
	}
	return dir, remove, nil
}
