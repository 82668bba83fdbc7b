package serve

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/bench/host"
)

// uploads are how many small files each upload has. The one in the middle has
// the bound; that the last takes no more of the server for each file than the
// first shows that the time is linear.
var uploads = []int{5_000, 10_000, 20_000}

const (
	mostUpload = 10 * time.Second // for 10,000 files
	mostGrowth = 1.25             // of the processor time for each file, from 5,000 to 20,000
	smallBytes = 1 << 10
)

func measureUpload(ctx context.Context, b *bench) ([]figure, error) {
	return b.uploads(ctx, func(codebase string, n int) error {
		content := bytes.Repeat([]byte("x"), smallBytes)
		for i := range n {
			if err := b.uploadFile(ctx, codebase, smallPath(i), content); err != nil {
				return err
			}
		}
		return nil
	})
}

func measureUploadTree(ctx context.Context, b *bench) ([]figure, error) {
	return b.uploads(ctx, func(codebase string, n int) error {
		up, err := b.codebases.UploadTree(ctx)
		if err != nil {
			return err
		}
		content := bytes.Repeat([]byte("x"), smallBytes)
		for i := range n {
			// Where a message is not taken, the answer tells why.
			_ = up.Send(metadataChunk(codebase, smallPath(i), smallBytes))
			_ = up.Send(dataChunk(content))
		}
		r, err := up.CloseAndRecv()
		if err == nil && r.FileCount != int64(n) {
			err = fmt.Errorf("%d files arrived of %d", r.FileCount, n)
		}
		return err
	})
}

func smallPath(i int) string { return fmt.Sprintf("d%d/f%d.txt", i/100, i) }

// uploads measures an upload into an empty codebase, which stays: ext4 without
// a journal does not reuse the inodes of removed files for minutes, and passes
// over each of them when it makes a file.
func (b *bench) uploads(ctx context.Context, upload func(codebase string, n int) error) ([]figure, error) {
	var figures []figure
	var each []float64
	for _, n := range uploads {
		codebase, err := b.newCodebase(ctx)
		if err != nil {
			return figures, err
		}
		begun := time.Now()
		used, err := b.using(func() error { return upload(codebase, n) })
		if err != nil {
			return figures, err
		}
		took := time.Since(begun)
		f := figure{Name: strconv.Itoa(n) + " files", Unit: nanoseconds, Value: float64(took)}
		if n == 10_000 {
			f.Most = float64(mostUpload)
		}
		figures, each = append(figures, f), append(each, float64(used)/float64(n))
	}
	return append(figures, figure{
		Name: "processor time for each file, 20,000 against 5,000", Unit: times, Value: each[2] / each[0], Most: mostGrowth,
	}), nil
}

// streamPatience is how long the output may take.
const streamPatience = 10 * time.Minute

// streamedBytes are how much output the rows stream and stream-rest have.
const streamedBytes = 1 << 30

// Memory is flat if what a process has more than at first is no more than this.
const mostMore = 24 << 20

// makeOutput writes so much, as text.
var makeOutput = fmt.Sprintf("yes | head -c %d", streamedBytes)

func measureStream(ctx context.Context, b *bench) ([]figure, error) {
	return b.streamed(ctx, func(sandbox string, got func(int)) error {
		stream, err := b.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{
			SandboxId: sandbox, Command: makeOutput, Timeout: durationpb.New(streamPatience),
		})
		if err != nil {
			return err
		}
		return drain(stream, func(m *sandboxv1.ExecOutput) error {
			got(len(m.Data))
			if m.ExitCode == nil {
				return nil
			}
			return succeeded(makeOutput, *m.ExitCode, "")
		})
	})
}

func measureStreamREST(ctx context.Context, b *bench) ([]figure, error) {
	return b.streamed(ctx, func(sandbox string, got func(int)) error {
		body := strings.NewReader(`{"timeout":"600s","command":` + strconv.Quote(makeOutput) + `}`)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/sandboxes/"+sandbox+"/exec:stream", body)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+b.token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
			return fmt.Errorf("REST: %s: %s", answer.Status, text)
		}
		return readEvents(answer.Body, got)
	})
}

// streamed measures a stream of output and the memory of server and supervisor
// meanwhile.
func (b *bench) streamed(ctx context.Context, stream func(sandbox string, got func(int)) error) ([]figure, error) {
	var memory sampled
	var total int64
	took, err := b.inSandboxOnce(ctx, func(sandbox string) error {
		var err error
		if memory, err = b.newSampled(); err != nil {
			return err
		}
		defer memory.watch()()
		return stream(sandbox, func(n int) { total += int64(n) })
	})
	if err != nil {
		return nil, err
	}
	return append([]figure{
		{Name: "bytes that arrived", Unit: count, Value: float64(total), Most: streamedBytes, Exact: true},
		{Name: "throughput", Unit: bytesPerS, Value: float64(total) / took.Seconds()},
	}, memory.figures()...), nil
}

func (b *bench) inSandboxOnce(ctx context.Context, call func(sandbox string) error) (took time.Duration, err error) {
	sandbox, err := b.freshSandbox(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		if endErr := b.destroy(ctx, sandbox); err == nil {
			err = endErr
		}
	}()
	begun := time.Now()
	err = call(sandbox)
	return time.Since(begun), err
}

// sampled follows the resident memory of processes.
type sampled struct {
	of []*watched
}

type watched struct {
	name        string
	pid         int
	first, most int64
}

const samplePause = 50 * time.Millisecond

// newSampled watches the server, the one supervisor there is, and more.
func (b *bench) newSampled(more ...*watched) (sampled, error) {
	s := sampled{of: []*watched{{name: "server", pid: b.cmd.Process.Pid}}}
	procs, err := host.ReadProcesses()
	if err != nil {
		return s, err
	}
	for pid, p := range procs {
		if p.Parent == b.cmd.Process.Pid {
			s.of = append(s.of, &watched{name: "supervisor", pid: pid})
		}
	}
	if len(s.of) != 2 {
		return s, fmt.Errorf("%d supervisors, want one", len(s.of)-1)
	}
	s.of = append(s.of, more...)
	for _, w := range s.of {
		w.first, err = residentBytes(w.pid)
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// watch samples until stop is called.
func (s sampled) watch() (stop func()) {
	done := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(samplePause)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			for _, w := range s.of {
				if now, err := residentBytes(w.pid); err == nil {
					w.most = max(w.most, now)
				}
			}
		}
	})
	return func() {
		close(done)
		wait.Wait()
	}
}

func (s sampled) figures() []figure {
	var f []figure
	for _, w := range s.of {
		f = append(f,
			figure{Name: "memory of the " + w.name + " at first", Unit: memoryBytes, Value: float64(w.first)},
			figure{Name: "at most so much more meanwhile", Unit: memoryBytes, Value: float64(max(0, w.most-w.first)), Most: mostMore})
	}
	return f
}

// residentBytes is the resident set size (proc_pid_statm(5)).
func residentBytes(pid int) (int64, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		return 0, err
	}
	return resident * int64(os.Getpagesize()), nil
}
